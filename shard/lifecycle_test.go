// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package shard_test

import (
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/internal/testhost"
	"github.com/berth-dev/berth/isolation"
	"github.com/berth-dev/berth/shard"
	"github.com/berth-dev/berth/translate"
)

// config is a shard's on the shared host, in a directory of its own.
func config(t *testing.T) shard.Config {
	t.Helper()
	return shard.Config{
		Dir: t.TempDir(), Host: theHost(t).Config(), ServingCA: func() []byte { return theHost(t).ServingCA }, Logger: klog.Background(),
		Endpoint: func(space string) string { return "https://berth.example:7443/spaces/" + space },
	}
}

func start(t *testing.T, c shard.Config) *shard.Shard {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testhost.Timeout)
	defer cancel()
	s, err := shard.Start(ctx, c)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func stop(t *testing.T, s *shard.Shard) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), testhost.Timeout)
	defer cancel()
	if err := s.Stop(ctx); err != nil {
		t.Error(err)
	}
}

// startSpace isolates a space and starts it.
func startSpace(t *testing.T, s *shard.Shard, name string) *shard.Space {
	t.Helper()
	build(t, name)
	ctx, cancel := context.WithTimeout(t.Context(), testhost.Timeout)
	defer cancel()
	space, err := s.StartSpace(ctx, name)
	if err != nil {
		t.Fatal(err)
	}
	return space
}

func build(t *testing.T, space string) {
	t.Helper()
	host, err := client.New(theHost(t).Config(), client.Options{Scheme: scheme.Scheme})
	if err != nil {
		t.Fatal(err)
	}
	if err := isolation.Apply(t.Context(), host, translate.Space{Name: space}, nil); err != nil {
		t.Fatal(err)
	}
}

func stopSpace(t *testing.T, s *shard.Shard, name string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), testhost.Timeout)
	defer cancel()
	if err := s.StopSpace(ctx, name); err != nil {
		t.Error(err)
	}
}

func virtual(t *testing.T, space *shard.Space) kubernetes.Interface {
	t.Helper()
	return testhost.Clientset(t, space.Loopback())
}

// settled reports goroutines that are left over from what was started since
// ignored was taken. The host and its clients go on all the time.
func settled(t *testing.T, ignored goleak.Option) {
	t.Helper()
	if err := goleak.Find(ignored, goleak.IgnoreAnyFunction("k8s.io/klog/v2.(*flushDaemon).run.func1")); err != nil {
		t.Error(err)
	}
}

// Starting and stopping leaves nothing behind, however often (T8).
func TestStartsAndStopsLeaveNoGoroutine(t *testing.T) {
	c := config(t)
	cycle := func() {
		s := start(t, c)
		startSpace(t, s, "cycle")
		stopSpace(t, s, "cycle")
		if names := s.Names(); len(names) > 0 {
			t.Errorf("after the stop the shard names %v", names)
		}
		stop(t, s)
	}
	cycle() // what the first leaves is for the process
	ignored := goleak.IgnoreCurrent()
	for range 5 {
		cycle()
	}
	settled(t, ignored)
}

// A start is given up within moments whenever its stop comes, by its own
// context, by StopSpace or by Stop, and the next one works.
func TestAStopInAStartLeavesNothing(t *testing.T) {
	c := config(t)
	s := start(t, c)
	began := time.Now()
	startSpace(t, s, "half")
	whole := time.Since(began)
	stopSpace(t, s, "half")
	stop(t, s)
	ignored := goleak.IgnoreCurrent()

	ways := map[string]func(cancel context.CancelFunc, s *shard.Shard){
		"context":   func(cancel context.CancelFunc, _ *shard.Shard) { cancel() },
		"StopSpace": func(_ context.CancelFunc, s *shard.Shard) { stopSpace(t, s, "half") },
		"Stop":      func(_ context.CancelFunc, s *shard.Shard) { stop(t, s) },
	}
	for name, way := range ways {
		t.Run(name, func(t *testing.T) {
			var cut int
			for i := range 5 {
				s := start(t, c)
				ctx, cancel := context.WithCancel(t.Context())
				at := whole * time.Duration(2*i+1) / 10
				if i == 0 { // the first start may have been far slower
					at = 5 * time.Millisecond
				}
				timer := time.AfterFunc(at, func() { way(cancel, s) })
				if _, err := s.StartSpace(ctx, "half"); err != nil {
					cut++
					if !errors.Is(err, context.Canceled) && !errors.Is(err, shard.ErrStopped) {
						t.Errorf("stopped in its start: %v", err)
					}
				}
				timer.Stop()
				stop(t, s)
				cancel()
				if s.Handler("half") != nil || s.Space("half") != nil {
					t.Error("the space is still there")
				}
			}
			if cut == 0 {
				t.Error("no start was stopped")
			}
		})
	}
	settled(t, ignored)

	s = start(t, c)
	startSpace(t, s, "half")
	stop(t, s)
	if _, err := s.StartSpace(t.Context(), "half"); !errors.Is(err, shard.ErrStopped) {
		t.Errorf("started in a stopped shard: %v", err)
	}
}

func TestASpaceIsStartedOnce(t *testing.T) {
	s := start(t, config(t))
	defer stop(t, s)
	startSpace(t, s, "once")
	if _, err := s.StartSpace(t.Context(), "once"); !errors.Is(err, shard.ErrTaken) {
		t.Errorf("started twice: %v", err)
	}
	if names := s.Names(); !slices.Equal(names, []string{"once"}) {
		t.Errorf("the shard names %v", names)
	}
	if s.Handler("once") == nil || s.Handler("other") != nil {
		t.Error("the shard serves what it does not run, or not what it runs")
	}
	stopSpace(t, s, "once")
	stopSpace(t, s, "once") // of a space that does not run: nothing to do

	// However many try at once.
	var wg sync.WaitGroup
	var started, refused atomic.Int32
	for range 8 {
		wg.Go(func() {
			switch _, err := s.StartSpace(t.Context(), "once"); {
			case err == nil:
				started.Add(1)
			case errors.Is(err, shard.ErrTaken):
				refused.Add(1)
			default:
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if started.Load() != 1 || refused.Load() != 7 {
		t.Errorf("of 8 starts at once %d succeeded and %d were refused", started.Load(), refused.Load())
	}
	for range 3 {
		wg.Go(func() { stopSpace(t, s, "once") })
	}
	wg.Wait()
	startSpace(t, s, "once")
}

// A host that cannot be read, or does not answer, is an error; what was begun
// on it ends.
func TestAShardDoesNotStartOnAHostThatItCannotRead(t *testing.T) {
	tests := map[string]struct {
		reason string
		answer func(*http.Request) error
	}{
		"unreachable": {"nothing answers", func(*http.Request) error { return errors.New("no route to host") }},
		"half there": {"it answers single reads, but no lists", func(r *http.Request) error {
			if strings.HasPrefix(r.URL.Path, "/api/v1/") {
				return errors.New("connection reset by peer")
			}
			return nil
		}},
		"hanging": {"it takes requests and never answers", func(r *http.Request) error {
			if !strings.HasPrefix(r.URL.Path, "/api/v1/") {
				return nil
			}
			<-r.Context().Done()
			return r.Context().Err()
		}},
	}
	ignored := goleak.IgnoreCurrent()
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			c := config(t)
			c.Host = rest.CopyConfig(c.Host)
			c.Host.Wrap(func(next http.RoundTripper) http.RoundTripper {
				return roundTrip(func(r *http.Request) (*http.Response, error) {
					if err := test.answer(r); err != nil {
						return nil, err
					}
					return next.RoundTrip(r)
				})
			})
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			defer cancel()
			if _, err := shard.Start(ctx, c); err == nil {
				t.Errorf("%s: started", test.reason)
			}
		})
	}
	settled(t, ignored)
}

type roundTrip func(*http.Request) (*http.Response, error)

// RoundTrip implements [http.RoundTripper].
func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// D1: a store damaged on disk is reported, never half-served; a space that
// cannot start leaves nothing behind, and starts again once it is repaired.
func TestASpaceWhoseStoreIsDamagedDoesNotStartUntilItIsRepaired(t *testing.T) {
	c := config(t)
	s := start(t, c)
	defer stop(t, s)
	startSpace(t, s, "damaged")
	stopSpace(t, s, "damaged")
	path := filepath.Join(c.Dir, "damaged", "store.db")
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	ignored := goleak.IgnoreCurrent()
	if err := os.WriteFile(path, []byte("not a store"), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := s.StartSpace(t.Context(), "damaged"); err == nil || errors.Is(err, shard.ErrTaken) {
			t.Fatalf("started on a damaged store: %v", err)
		}
		if s.Handler("damaged") != nil || len(s.Names()) > 0 {
			t.Error("the space is served")
		}
	}
	settled(t, ignored)
	if err := os.WriteFile(path, whole, 0o600); err != nil {
		t.Fatal(err)
	}
	startSpace(t, s, "damaged")
}
