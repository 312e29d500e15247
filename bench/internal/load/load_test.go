// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package load_test

import (
	"errors"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/berth-dev/berth/bench/internal/load"
	"github.com/berth-dev/berth/internal/testhost"
)

var shared = sync.OnceValues(testhost.Start)

func TestMain(m *testing.M) { os.Exit(testhost.Main(m, shared)) }

func options() load.Options {
	return load.Options{Clients: 2, Pause: time.Millisecond, Held: time.Minute, Timeout: 10 * time.Second}
}

// The clients of a load write, and read what they wrote. All requests are counted, and nothing of them is left.
func TestALoadIsCountedAndRemoved(t *testing.T) {
	host, err := shared()
	if err != nil {
		t.Fatal(err)
	}
	running, err := load.Start(t.Context(), []load.Target{{Space: "a", Config: host.Config()}, {Space: "b", Config: host.Config()}}, options())
	if err != nil {
		t.Fatal(err)
	}
	const rounds = 4 // creation, reading, writing, reading
	for range rounds {
		if err := running.Settle(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if maps := configMaps(t, host.Config()); len(maps) != 4 {
		t.Errorf("while the load runs, its ConfigMaps are %v, want 4", maps)
	}
	if err := running.Stop(); err != nil {
		t.Fatal(err)
	}
	taken := running.Take()
	for _, space := range []string{"a", "b"} {
		s := taken[space]
		if s.Requests < 2*rounds || s.Failed != 0 || s.Held != 0 || s.Longest <= 0 {
			t.Errorf("of the requests to %s are counted %+v (%v)", space, s, s.FirstFailure)
		}
	}
	if again := running.TakeAll(); again.Requests != 0 {
		t.Errorf("%d requests were taken twice", again.Requests)
	}
	if maps := configMaps(t, host.Config()); len(maps) != 0 {
		t.Errorf("there is left %v", maps)
	}
}

// unavailable answers the first requests as a server does that asks to try again, which client-go does by itself.
type unavailable struct {
	http.RoundTripper
	mu   sync.Mutex
	left int
}

func (u *unavailable) RoundTrip(r *http.Request) (*http.Response, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.left--; u.left < 0 {
		return u.RoundTripper.RoundTrip(r)
	}
	return &http.Response{StatusCode: http.StatusServiceUnavailable, Header: http.Header{"Retry-After": {"1"}}, Body: http.NoBody, Request: r}, nil
}

// A request has failed that the server asks to repeat. The load goes on after it.
func TestARequestThatIsToBeRepeatedHasFailed(t *testing.T) {
	host, err := shared()
	if err != nil {
		t.Fatal(err)
	}
	config := host.Config()
	config.Wrap(func(rt http.RoundTripper) http.RoundTripper { return &unavailable{RoundTripper: rt, left: 2} })
	o := options()
	o.Clients = 1
	running, err := load.Start(t.Context(), []load.Target{{Space: "a", Config: config}}, o)
	if err != nil {
		t.Fatal(err)
	}
	if err := running.Settle(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := running.Stop(); err != nil {
		t.Fatal(err)
	}
	if s := running.TakeAll(); s.Failed != 2 || s.Requests < 3 || s.FirstFailure == nil {
		t.Errorf("counted are %+v", s)
	}
}

func configMaps(t *testing.T, config *rest.Config) (names []string) {
	t.Helper()
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	list, err := client.CoreV1().ConfigMaps(metav1.NamespaceDefault).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range list.Items {
		if strings.HasPrefix(list.Items[i].Name, "load-") {
			names = append(names, list.Items[i].Name)
		}
	}
	return names
}

// A Service leads new connections to the addresses that it has, in turn.
func TestAServiceLeadsToWhatIsReady(t *testing.T) {
	s := &load.Service{}
	if _, err := s.Dial(t.Context(), "tcp", "any:1"); !errors.Is(err, load.ErrNoEndpoint) {
		t.Errorf("a Service without an address: %v", err)
	}
	var addresses []string
	for range 2 {
		listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer listener.Close()
		addresses = append(addresses, listener.Addr().String())
		s.Add(listener.Addr().String())
	}
	reached := func(n int) (to []string) {
		for range n {
			conn, err := s.Dial(t.Context(), "tcp", "any:1")
			if err != nil {
				t.Fatal(err)
			}
			to = append(to, conn.RemoteAddr().String())
			_ = conn.Close()
		}
		slices.Sort(to)
		return slices.Compact(to)
	}
	if to := reached(4); len(to) != 2 {
		t.Errorf("of two addresses, %v were reached", to)
	}
	s.Remove(addresses[0])
	if to := reached(4); !slices.Equal(to, addresses[1:]) {
		t.Errorf("of %v, %v were reached", addresses[1:], to)
	}
}
