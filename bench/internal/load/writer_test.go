// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package load_test

import (
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/berth-dev/berth/bench/internal/load"
)

// lossy loses the answers to the first requests, which take effect.
type lossy struct {
	unavailable
}

func (l *lossy) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := l.RoundTripper.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.left--; l.left < 0 {
		return response, nil
	}
	_ = response.Body.Close()
	return nil, http.ErrHandlerTimeout
}

// A writer repeats what fails until it is acknowledged, and names what is lost of it.
func TestAWriterFindsWhatIsLost(t *testing.T) {
	host, err := shared()
	if err != nil {
		t.Fatal(err)
	}
	for name, faulty := range map[string]func(http.RoundTripper) http.RoundTripper{
		"a server that asks to try again": func(rt http.RoundTripper) http.RoundTripper { return &unavailable{RoundTripper: rt, left: 2} },
		"answers that are lost":           func(rt http.RoundTripper) http.RoundTripper { return &lossy{unavailable{RoundTripper: rt, left: 2}} },
	} {
		t.Run(name, func(t *testing.T) {
			config := host.Config()
			var writes sync.Once
			config.Wrap(func(rt http.RoundTripper) (wrapped http.RoundTripper) {
				wrapped = rt
				writes.Do(func() { wrapped = faulty(rt) }) // and not the list
				return wrapped
			})
			o := options()
			o.Clients = 1
			began := time.Now()
			w, err := load.StartWriter(t.Context(), load.Target{Space: "a", Config: config}, o)
			if err != nil {
				t.Fatal(err)
			}
			defer w.Stop()
			first, err := w.Await(t.Context(), began)
			if err != nil {
				t.Fatal(err)
			}
			if second, err := w.Await(t.Context(), first); err != nil || !second.After(first) {
				t.Errorf("after %s, a write was acknowledged at %s (%v)", first, second, err)
			}
			if again, err := w.Await(t.Context(), began); err != nil || !again.Equal(first) {
				t.Errorf("the first write was acknowledged at %s, and then at %s (%v)", first, again, err)
			}
			w.Stop()
			acknowledged, failed := w.Counts()
			if acknowledged < 2 || failed != 2 {
				t.Errorf("%d writes were acknowledged, and %d attempts failed", acknowledged, failed)
			}
			if lost, err := w.Lost(t.Context()); err != nil || len(lost) > 0 {
				t.Errorf("lost are %v (%v)", lost, err)
			}
			remove(t, kubernetes.NewForConfigOrDie(host.Config()), acknowledged, w)
		})
	}
}

// remove deletes the oldest object, which is found to be lost, and then the others.
func remove(t *testing.T, client kubernetes.Interface, acknowledged int, w *load.Writer) {
	t.Helper()
	maps := client.CoreV1().ConfigMaps(metav1.NamespaceDefault)
	list, err := maps.List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for i := range list.Items {
		if name := list.Items[i].Name; strings.HasPrefix(name, "written-") {
			names = append(names, name)
		}
	}
	if len(names) < acknowledged {
		t.Fatalf("%d writes were acknowledged, and there are %v", acknowledged, names)
	}
	for i, name := range names {
		if err := maps.Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		if i > 0 {
			continue
		}
		if lost, err := w.Lost(t.Context()); err != nil || !slices.Equal(lost, names[:1]) {
			t.Errorf("lost are %v, want %s (%v)", lost, name, err)
		}
	}
}
