// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package repairs

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/isolation"
)

var loosened = isolation.Change{Space: "a", Object: "NetworkPolicy berth in namespace berth-a", Field: "spec.ingress"}

// runRepairs runs repairs for as long as a test in a bubble does.
func runRepairs(t *testing.T, repair func(r *Repairs, space string) error) *Repairs {
	t.Helper()
	var r *Repairs
	r = New(func(_ context.Context, space string) error { return repair(r, space) }, func(string) {}, klog.Background())
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.Run(ctx)
	}()
	t.Cleanup(func() { cancel(); <-done })
	return r
}

// pass lets time pass in a bubble, whose clock waits for nothing.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// isolated returns the reason of the condition Isolated of the space a, which was true before, and its message.
func isolated(r *Repairs) (reason, message string) {
	condition, _ := r.Condition("a", []metav1.Condition{{Type: v1alpha1.ConditionIsolated, Status: metav1.ConditionTrue}})
	return condition.Reason, condition.Message
}

// S21: a change is undone within a second, and several at once by one repair.
func TestWhatSomebodyChangesIsPutBackAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var at []time.Duration
		begin := time.Now()
		r := runRepairs(t, func(*Repairs, string) error { at = append(at, time.Since(begin)); return nil })
		r.Note(loosened)
		r.Note(isolation.Change{Space: "a", Object: "LimitRange berth in namespace berth-a"})
		pass(time.Second)
		if len(at) != 1 {
			t.Errorf("it is repaired after %v, want once", at)
		}
		if _, say := r.Condition("a", nil); say {
			t.Error("a single change makes a condition")
		}
	})
}

// S21: nobody wins a fight with another controller, but it costs little, and the admin is told who is to be asked.
func TestAnObjectThatSomebodyChangesAgainAndAgainIsPutBackEverMoreRarely(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var repaired atomic.Int64
		var fights atomic.Bool
		fights.Store(true)
		r := runRepairs(t, func(r *Repairs, _ string) error {
			repaired.Add(1)
			if fights.Load() {
				r.Note(loosened)
			}
			return nil
		})
		r.Note(loosened)
		pass(time.Hour)
		if n := repaired.Load(); n < 60 || n > 75 {
			t.Errorf("it is put back %d times in an hour, want about once a minute", n)
		}
		reason, message := isolated(r)
		if reason != v1alpha1.ReasonContested || !strings.Contains(message, loosened.Object) || !strings.Contains(message, "--show-managed-fields") {
			t.Errorf("the condition says %s: %s", reason, message)
		}
		// Another object is put back as soon as ever.
		before := repaired.Load()
		r.Note(isolation.Change{Space: "a", Object: "LimitRange berth in namespace berth-a"})
		pass(time.Second)
		if repaired.Load() == before {
			t.Error("another object of the space waits for the one that somebody fights for")
		}

		fights.Store(false)
		pass(2*repairQuiet + repairPauseMax)
		if reason, message = isolated(r); reason != v1alpha1.ReasonIsolated {
			t.Errorf("after the fight the condition says %s: %s", reason, message)
		}
		if len(r.of) > 0 || r.pauses.NumRequeues(isolatingObject{"a", loosened.Object}) > 0 {
			t.Error("a fight that ended is remembered")
		}
	})
}

// S21: what can't be put back is said, with the reason, and tried again.
func TestARepairThatFailsIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var failures []error
		r := runRepairs(t, func(*Repairs, string) (err error) {
			if len(failures) > 0 {
				err, failures = failures[0], failures[1:]
			}
			return err
		})
		failures = slices.Repeat([]error{errors.New("the host refuses it")}, 3)
		failures = append(failures, apierrors.NewConflict(v1alpha1.Resource("spaces"), "a", errors.New("it is being restored")))
		r.Note(loosened)
		pass(150 * time.Millisecond)
		reason, message := isolated(r)
		if reason != v1alpha1.ReasonNotRepaired || !strings.Contains(message, loosened.String()) || !strings.Contains(message, "the host refuses it") {
			t.Errorf("the condition says %s: %s", reason, message)
		}
		pass(5 * time.Second)
		if reason, message = isolated(r); reason != v1alpha1.ReasonIsolated || len(failures) > 0 {
			t.Errorf("the condition says %s: %s; %d failures are left", reason, message, len(failures))
		}
	})
}

// S21: nothing is said to be put back of a space that is gone, nor remembered.
func TestAChangeOfASpaceThatIsGoneIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var logged strings.Builder
		r := runRepairs(t, func(*Repairs, string) error { return ErrNotIsolated })
		r.logger = funcr.New(func(_, line string) { logged.WriteString(line) }, funcr.Options{})
		r.Note(loosened)
		pass(time.Minute)
		if logged.Len() > 0 || len(r.of) > 0 || r.pauses.NumRequeues(isolatingObject{"a", loosened.Object}) > 0 {
			t.Errorf("remembered are %v, and logged %q", r.of, logged.String())
		}
	})
}
