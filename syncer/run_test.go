// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package syncer

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// What comes to nothing comes again, ever later, and is forgotten once it is
// done: a tenant that makes and deletes what is refused costs no memory (S7).
func TestWorkThatComesToNothingComesAgainEverLater(t *testing.T) {
	pod := schema.GroupResource{Resource: "pods"}
	tests := map[string]struct {
		reason string
		err    error
		later  bool // or else it is an error, which the queue backs off from
	}{
		"refused":             {"the tenant was told", errRefused, true},
		"conflict":            {"somebody was faster, or it is about a quota", fmt.Errorf("sync: %w", apierrors.NewConflict(pod, "p", errors.New("changed"))), true},
		"not found":           {"it is gone, or what it needs is not there", errors.Join(nil, apierrors.NewNotFound(pod, "p")), true},
		"anything else":       {"the host is down", errors.New("connection refused"), false},
		"forbidden, not told": {"for lack of a role", apierrors.NewForbidden(pod, "p", errors.New("no role")), false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			err := test.err
			s := &Syncer{
				later: workqueue.NewTypedItemExponentialFailureRateLimiter[Key](firstLater, lastRetry),
				kinds: map[string]func(context.Context, types.NamespacedName) (reconcile.Result, error){
					"things": func(context.Context, types.NamespacedName) (reconcile.Result, error) {
						return reconcile.Result{RequeueAfter: time.Hour}, err
					},
				},
			}
			key := Key{Kind: "things", NamespacedName: types.NamespacedName{Name: "t"}}
			var pauses []time.Duration
			for range 8 {
				result, err := s.reconcile(t.Context(), key)
				if test.later == (err != nil) {
					t.Fatalf("%s: got error %v", test.reason, err)
				}
				pauses = append(pauses, result.RequeueAfter)
			}
			if test.later && (pauses[0] != firstLater || pauses[1] != 2*firstLater || pauses[7] != lastRetry) {
				t.Errorf("%s: it comes again after %v", test.reason, pauses)
			}
			err = nil
			if result, err := s.reconcile(t.Context(), key); err != nil || result.RequeueAfter != time.Hour {
				t.Errorf("done: got %v (%v)", result, err)
			}
			if n := s.later.NumRequeues(key); n != 0 {
				t.Errorf("done, and %d failures are remembered", n)
			}
		})
	}
}

func TestWhatIsQueuedWhenASyncerStopsIsNotDone(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := (&Syncer{}).reconcile(ctx, Key{Kind: "things"}); err != nil {
		t.Error(err)
	}
}

// A syncer that is stopped while it starts leaves no handler behind, whether its
// sources were added before or would be after.
func TestASyncerThatStopsInItsStartIsFedNoMore(t *testing.T) {
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[Key](firstRetry, lastRetry))
	defer queue.ShutDown()
	added := map[string]int{}
	source := func(name string, err error) addSource {
		return func(func(Key)) (func(), error) {
			if err != nil {
				return nil, err
			}
			added[name]++
			return func() { added[name]-- }, nil
		}
	}
	tests := map[string]func() error{
		"before": func() error {
			f := &feed{sources: []addSource{source("one", nil), source("two", nil)}}
			defer f.close()
			return f.open(t.Context(), queue)
		},
		"after": func() error {
			f := &feed{sources: []addSource{source("one", nil)}}
			f.close()
			return f.open(t.Context(), queue)
		},
		"half": func() error {
			f := &feed{sources: []addSource{source("one", nil), source("two", errors.New("synced twice")), source("three", nil)}}
			defer f.close()
			if err := f.open(t.Context(), queue); err == nil {
				return errors.New("a source that cannot be added is no error")
			}
			return nil
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if err := test(); err != nil {
				t.Error(err)
			}
			for name, handlers := range added {
				if handlers != 0 {
					t.Errorf("source %s has %d handlers", name, handlers)
				}
			}
		})
	}
}
