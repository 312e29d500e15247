// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/kubernetes"
	"go.uber.org/goleak"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/berth-dev/berth/kine"
	"github.com/berth-dev/berth/vcluster/informer"
	"github.com/berth-dev/berth/vcluster/registry"
)

const thing = informer.Root + "things/ns/one"

// supervised runs a supervisor of one controller, which is for things, on a
// store of its own.
func supervised(t *testing.T, build buildFunc) (*supervisor, *kubernetes.Client, *clocktesting.FakeClock) {
	t.Helper()
	leaks := goleak.IgnoreCurrent()
	t.Cleanup(func() {
		goleak.VerifyNone(t, leaks, goleak.IgnoreAnyFunction("k8s.io/klog/v2.(*flushDaemon).run.func1"))
	})
	client := openStore(t)
	s, clock := supervise(t, client, trigger{prefix: informer.Root + "things/"}, build)
	return s, client, clock
}

func openStore(t *testing.T) *kubernetes.Client {
	t.Helper()
	store, err := kine.Open(t.Context(), kine.Options{Path: filepath.Join(t.TempDir(), "store.db"), Name: "test"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	return store.Client()
}

// supervise runs a supervisor of one controller, which is for some objects.
func supervise(t *testing.T, client *kubernetes.Client, objects trigger, build buildFunc) (*supervisor, *clocktesting.FakeClock) {
	t.Helper()
	pool := informer.NewPool(nil, informer.NewFeed(client.Client, klog.Background()), nil, klog.Background())
	t.Cleanup(pool.Stop)
	clock := clocktesting.NewFakeClock(time.Now())
	s := newSupervisor([]string{"c"}, map[string]demand{"c": on(objects)}, &registry.Reader{Client: client.Client}, build, time.Hour, clock, klog.Background())
	t.Cleanup(s.Stop)
	if err := s.start(t.Context(), pool.Feed()); err != nil {
		t.Fatal(err)
	}
	return s, clock
}

func expectRunning(t *testing.T, s *supervisor, clock *clocktesting.FakeClock, step time.Duration, want ...string) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
		if clock.HasWaiters() {
			clock.Step(step)
		}
		return slices.Equal(s.Names(), want), nil
	})
	if err != nil {
		t.Fatalf("%v run, want %v: %v", s.Names(), want, err)
	}
}

func put(t *testing.T, client *kubernetes.Client, key string) {
	t.Helper()
	if r, err := client.OptimisticPut(t.Context(), key, []byte("{}"), 0, kubernetes.PutOptions{}); err != nil || !r.Succeeded {
		t.Fatalf("put %s: %v, %v", key, r, err)
	}
}

func remove(t *testing.T, client *kubernetes.Client, key string) {
	t.Helper()
	r, err := client.Get(t.Context(), key, kubernetes.GetOptions{})
	if err != nil || r.KV == nil {
		t.Fatalf("get %s: %v", key, err)
	}
	if _, err := client.OptimisticDelete(t.Context(), key, r.KV.ModRevision, kubernetes.DeleteOptions{GetOnFailure: true}); err != nil {
		t.Fatal(err)
	}
}

func untilDone(ctx context.Context) { <-ctx.Done() }

// T7
func TestAControllerRunsWhileItsObjectsExistAndForTheQuietTimeAfter(t *testing.T) {
	var starts atomic.Int32
	s, client, clock := supervised(t, func(context.Context, string) (func(context.Context), error) {
		starts.Add(1)
		return untilDone, nil
	})
	if running := s.Names(); len(running) > 0 {
		t.Fatalf("%v run in an empty store", running)
	}
	for range 2 {
		put(t, client, thing)
		expectRunning(t, s, clock, 0, "c")
		before := starts.Load()
		for range 3 { // it is looked for, and it is there
			step(t, clock, time.Hour)
		}
		if again := starts.Load() - before; again != 0 {
			t.Errorf("started %d times though it was needed all the time", again)
		}
		remove(t, client, thing)
		expectRunning(t, s, clock, time.Hour)
	}
}

// step waits until somebody waits for the clock, and moves it.
func step(t *testing.T, clock *clocktesting.FakeClock, d time.Duration) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
		return clock.HasWaiters(), nil
	})
	if err != nil {
		t.Fatal(err)
	}
	clock.Step(d)
}

// One space's controller must not end the process, nor stay away for good.
func TestAControllerThatFailsIsStartedAgain(t *testing.T) {
	fails := map[string]func() (func(context.Context), error){
		"it can't be built":    func() (func(context.Context), error) { return nil, errors.New("broken") },
		"building it panics":   func() (func(context.Context), error) { panic("broken") },
		"it panics":            func() (func(context.Context), error) { return func(context.Context) { panic("broken") }, nil },
		"it returns by itself": func() (func(context.Context), error) { return func(context.Context) {}, nil },
	}
	for reason, fail := range fails {
		t.Run(reason, func(t *testing.T) {
			var tries atomic.Int32
			s, client, clock := supervised(t, func(context.Context, string) (func(context.Context), error) {
				if tries.Add(1) < 4 {
					return fail()
				}
				return untilDone, nil
			})
			put(t, client, thing)
			err := wait.PollUntilContextTimeout(t.Context(), time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
				if tries.Load() < 4 && clock.HasWaiters() {
					clock.Step(controllerRetryMax)
				}
				return tries.Load() == 4 && slices.Equal(s.Names(), []string{"c"}), nil
			})
			if err != nil {
				t.Errorf("after %d tries %v run: %v", tries.Load(), s.Names(), err)
			}
		})
	}
}

// A store that was compacted under the feed has changes that nobody will hear
// of.
func TestALostFeedLooksForWorkAnew(t *testing.T) {
	s, client, clock := supervised(t, func(context.Context, string) (func(context.Context), error) { return untilDone, nil })
	s.Lost()
	expectRunning(t, s, clock, time.Hour) // it stops: there was none
	put(t, client, thing)
	expectRunning(t, s, clock, 0, "c")
	if n, err := client.Client.Get(t.Context(), thing, clientv3.WithCountOnly()); err != nil || n.Count != 1 {
		t.Errorf("%v, %v", n, err)
	}
}

// D5: a space with a large store starts before the whole store was read. What is found in it, or written meanwhile, still
// has its controller run.
func TestAStartDoesNotWaitUntilTheWholeStoreIsRead(t *testing.T) {
	const earlier, later = informer.Root + "things/ns/earlier", informer.Root + "things/ns/later"
	for name, what := range map[string]struct {
		works     string // the key of the object that the controller is for
		meanwhile bool   // whether that is written while the store is read
	}{
		"there is work":                  {works: earlier},
		"work comes while it is read":    {works: later, meanwhile: true},
		"work comes after it was read":   {works: later},
		"there is no work, and it stays": {},
	} {
		t.Run(name, func(t *testing.T) {
			client := openStore(t)
			put(t, client, earlier)
			reading, read := make(chan struct{}), make(chan struct{})
			reads := sync.OnceFunc(func() { close(reading) })
			s, clock := supervise(t, client, trigger{prefix: informer.Root, match: func(key string, _ []byte) bool {
				if key == earlier {
					reads()
					<-read
				}
				return key == what.works
			}}, func(context.Context, string) (func(context.Context), error) { return untilDone, nil })
			<-reading
			unit := s.units["c"]
			state := func() (wants int, live bool) {
				s.mu.Lock()
				defer s.mu.Unlock()
				return unit.wants, unit.live
			}
			if what.meanwhile {
				put(t, client, later)
				eventually(t, "the write is noticed", func() bool { wants, _ := state(); return wants > 0 })
			}
			if names := s.Names(); len(names) > 0 {
				t.Errorf("%v run before it is known whether they are needed", names)
			}
			close(read)
			if what.works == earlier || what.meanwhile {
				expectRunning(t, s, clock, 0, "c")
				return
			}
			eventually(t, "nothing is looked for any more", func() bool { _, live := state(); return !live })
			if what.works == later {
				put(t, client, later)
				expectRunning(t, s, clock, 0, "c")
			}
		})
	}
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), time.Millisecond, time.Minute, true, func(context.Context) (bool, error) { return is(), nil })
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}
