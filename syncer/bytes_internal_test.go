// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package syncer

import (
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/berth-dev/berth/bounds"
)

func named(name string) object {
	return object{configMaps, types.NamespacedName{Namespace: "berth-demo", Name: name}}
}

// S5: what is written in a minute is bounded; what comes too soon passes when it says so.
func TestHostileBytesOfAMinuteAreBounded(t *testing.T) {
	now := testingclock.NewFakePassiveClock(time.Now())
	p := newPace(bounds.NewAccount(bounds.Limits{bounds.SyncedBytesPerMinute: 60_000}), now)
	var soon *pacedError
	for i := range 60 {
		if err := p.wait(named("small"), 1000, true); err != nil {
			t.Fatalf("write %d: %v", i, err)
		}
	}
	err := p.wait(named("small"), 1000, true)
	if !errors.As(err, &soon) || soon.after != time.Second {
		t.Fatalf("got %v, want that it waits for a second", err)
	}
	now.SetTime(now.Now().Add(soon.after))
	if err := p.wait(named("small"), 1000, true); err != nil {
		t.Error(err)
	}
	now.SetTime(now.Now().Add(time.Hour))
	if err := p.wait(named("huge"), 1_000_000, false); err != nil {
		t.Errorf("what is larger than a minute's bytes never passes: %v", err)
	}
	now.SetTime(now.Now().Add(time.Minute))
	if err := p.wait(named("huge"), 50_000, true); err != nil {
		t.Error(err)
	}
	if err := p.wait(named("huge"), 10_000, true); err != nil {
		t.Errorf("it is not large any more: %v", err)
	}
	now.SetTime(now.Now().Add(time.Minute))
	if err := p.wait(named("large"), large+1, false); err != nil {
		t.Error(err)
	}
	if err := p.wait(named("large"), large+1, true); !errors.As(err, &soon) || soon.after != largePause {
		t.Errorf("got %v, want that a large object waits", err)
	}
}

func TestALedgerForgetsWhatNeverCame(t *testing.T) {
	now := testingclock.NewFakePassiveClock(time.Now())
	var retried []Key
	l := newLedger(bounds.IngressHostnames, bounds.NewAccount(bounds.Limits{bounds.IngressHostnames: 10}), now,
		func(o object) bool { return o == named("there") }, func(key Key) { retried = append(retried, key) })
	for _, name := range []string{"there", "not"} {
		if _, err := l.take(named(name), 5); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := l.take(named("more"), 5); !errors.Is(err, bounds.ErrExceeded) {
		t.Fatalf("got %v", err)
	}
	l.keep(thing("more"))
	if _, err := l.take(named("there"), 5); err != nil {
		t.Errorf("what is there already may not be what it is: %v", err)
	}
	now.SetTime(now.Now().Add(unshown + time.Second))
	undo, err := l.take(named("more"), 5)
	if err != nil {
		t.Fatal(err)
	}
	undo()
	if len(retried) != 1 || l.total != 5 {
		t.Errorf("%v are tried again, %d in use", retried, l.total)
	}
	var none *ledger
	if _, err := none.take(named("any"), 1<<50); err != nil {
		t.Error(err)
	}
}

// A host object counts as much in the shared watches, which have no data, as when it is sent.
func TestTheSharedWatchesKnowTheSizeOfData(t *testing.T) {
	data := strings.Repeat("x", 100_000)
	for _, host := range []func() (sent, held int64){
		func() (int64, int64) {
			o := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "c"}, Data: map[string]string{"a": data}}
			return sizeOf(o), sizeOf(trim(o.DeepCopy()))
		},
		func() (int64, int64) {
			o := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "s"}, Data: map[string][]byte{"a": []byte(data)}}
			return sizeOf(o), sizeOf(trim(o.DeepCopy()))
		},
	} {
		if sent, held := host(); held < sent || held > sent+300 {
			t.Errorf("it is %d when it is sent and %d when it is held", sent, held)
		}
	}
}
