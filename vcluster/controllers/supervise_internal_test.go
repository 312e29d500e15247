// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
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
	store, err := kine.Open(t.Context(), kine.Options{Path: filepath.Join(t.TempDir(), "store.db"), Name: "test"})
	if err != nil {
		t.Fatal(err)
	}
	pool := informer.NewPool(nil, informer.NewFeed(store.Client().Client, klog.Background()), nil, klog.Background())
	clock := clocktesting.NewFakeClock(time.Now())
	s := newSupervisor([]string{"c"}, map[string]demand{"c": on(trigger{prefix: informer.Root + "things/"})},
		&registry.Reader{Client: store.Client().Client}, build, time.Hour, clock, klog.Background())
	if err := s.start(t.Context(), pool.Feed()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.Stop()
		pool.Stop()
		if err := store.Close(); err != nil {
			t.Error(err)
		}
		goleak.VerifyNone(t, leaks, goleak.IgnoreAnyFunction("k8s.io/klog/v2.(*flushDaemon).run.func1"))
	})
	return s, store.Client(), clock
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
