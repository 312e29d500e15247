// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
)

// working is a syncer of which only the work on keys of resource "things" is there.
func working(work func() (time.Duration, error)) *Engine {
	return &Engine{
		logger: logr.Discard(), shortages: &shortages{},
		soon:  workqueue.NewTypedItemExponentialFailureRateLimiter[Key](FirstRetry, lastRetry),
		later: workqueue.NewTypedItemExponentialFailureRateLimiter[Key](firstLater, lastRetry),
		Work: map[string]func(context.Context, types.NamespacedName) (time.Duration, error){
			"things": func(context.Context, types.NamespacedName) (time.Duration, error) { return work() },
		},
	}
}

func thing(name string) Key {
	return Key{Resource: "things", NamespacedName: types.NamespacedName{Name: name}}
}

// What comes to nothing comes again, ever later, and is forgotten once it is
// done: a tenant that makes and deletes what is refused costs no memory (S7).
func TestWorkThatComesToNothingComesAgainEverLater(t *testing.T) {
	pod := schema.GroupResource{Resource: "pods"}
	tests := map[string]struct {
		reason string
		err    error
		first  time.Duration
		idle   bool // need not be done while the space sleeps
	}{
		"refused":             {"the tenant was told", errRefused, firstLater, true},
		"conflict":            {"somebody was faster, or it is about a quota", fmt.Errorf("sync: %w", apierrors.NewConflict(pod, "p", errors.New("changed"))), firstLater, false},
		"not found":           {"it is gone, or what it needs is not there", errors.Join(nil, apierrors.NewNotFound(pod, "p")), firstLater, false},
		"anything else":       {"the host is down", errors.New("connection refused"), FirstRetry, false},
		"forbidden, not told": {"for lack of a role", apierrors.NewForbidden(pod, "p", errors.New("no role")), FirstRetry, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			err := test.err
			s := working(func() (time.Duration, error) { return time.Hour, err })
			var tries []next
			for range 20 {
				tries = append(tries, s.reconcile(t.Context(), thing("t")))
			}
			want := func(after time.Duration) next {
				n := next{after: after, idle: test.idle, refused: test.idle, failed: test.first == FirstRetry}
				if test.idle {
					n.wake = time.Hour // what is on the host already wants to be looked at, asleep or not
				}
				return n
			}
			if tries[0] != want(test.first) || tries[1] != want(2*test.first) || tries[19] != want(lastRetry) {
				t.Errorf("%s: it comes again after %v", test.reason, tries)
			}
			err = nil
			if got := s.reconcile(t.Context(), thing("t")); got != (next{after: time.Hour}) {
				t.Errorf("done: got %v", got)
			}
			if n := s.later.NumRequeues(thing("t")) + s.soon.NumRequeues(thing("t")); n != 0 {
				t.Errorf("done, and %d failures are remembered", n)
			}
		})
	}
}

// A panic over one tenant's object is that object's failure, and ends no process.
func TestAPanicIsAnErrorOfItsKey(t *testing.T) {
	s := working(func() (time.Duration, error) { panic("a bug that a tenant found") })
	if got := s.reconcile(t.Context(), thing("t")); got != (next{after: FirstRetry, failed: true}) {
		t.Errorf("it comes again after %v", got)
	}
	if _, err := s.try(t.Context(), thing("t")); err == nil || !strings.Contains(err.Error(), "a bug that a tenant found") || !strings.Contains(err.Error(), "run_test.go") {
		t.Errorf("the error does not tell the panic and its place: %v", err)
	}
}

func TestWhatIsQueuedWhenASyncerStopsIsNotDone(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if got := (&Engine{}).reconcile(ctx, thing("t")); got != (next{}) {
		t.Errorf("it comes again: %v", got)
	}
}

// However its start ends, a syncer that has ended gets no more events.
func TestASyncerThatHasEndedGetsNoMoreEvents(t *testing.T) {
	handlers := 0
	opens := func(*Queue) (func(), func() bool, error) {
		handlers++
		return func() { handlers-- }, nil, nil
	}
	fails := func(*Queue) (func(), func() bool, error) { return nil, nil, errors.New("synced twice") }
	tests := map[string]struct {
		sources []source
		fails   bool
	}{
		"all sources open":  {[]source{opens, opens}, false},
		"one does not":      {[]source{opens, fails, opens}, true},
		"there is no other": {nil, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			f := &sources{all: test.sources}
			if err := f.Open(nil); (err != nil) != test.fails {
				t.Errorf("open: %v", err)
			}
			if f.hasSynced() == test.fails {
				t.Errorf("synced: %t", f.hasSynced())
			}
			f.Close()
			if handlers != 0 {
				t.Errorf("%d handlers are left", handlers)
			}
		})
	}
}
