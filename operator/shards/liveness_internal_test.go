// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package shards

import (
	"strconv"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	testingclock "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
)

func lease(version, holder string, seconds int32) *coordinationv1.Lease {
	one := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "a", ResourceVersion: version}}
	one.Spec.HolderIdentity, one.Spec.LeaseDurationSeconds = &holder, ptr.To(seconds)
	return one
}

// T9: only changes that this process has seen keep a Lease alive, for as long as its duration.
func TestALeaseIsAliveWhileItChanges(t *testing.T) {
	clock := testingclock.NewFakePassiveClock(time.Unix(0, 0))
	pass := func(d time.Duration) { clock.SetTime(clock.Now().Add(d)) }
	l := newLiveness(clock)
	is := func(what string, alive, open bool) {
		t.Helper()
		is, _ := l.check("a")
		stillOpen, _ := l.open("a")
		if is != alive || stillOpen != open {
			t.Errorf("%s: alive is %v, and open %v", what, is, stillOpen)
		}
	}
	is("without a Lease", false, false)
	l.note(lease("1", "a", 4), true)
	is("as it was at the start", false, true)
	pass(4 * time.Second)
	is("not renewed since the start", false, false)
	if !l.note(lease("2", "a", 4), false) {
		t.Error("it isn't noticed that it came to life")
	}
	is("renewed", true, false)
	pass(3 * time.Second)
	if l.note(lease("3", "a", 4), false) {
		t.Error("it came to life twice")
	}
	pass(3 * time.Second)
	is("renewed twice", true, false)
	l.note(lease("3", "a", 4), false)
	pass(time.Second)
	is("not changed by a resync", false, false)
	l.note(lease("4", "a", 3600), false)
	pass(maxDuration)
	is("of a duration that is too long", false, false)
	l.note(lease("5", "a", 4), false)
	l.note(lease("6", "", 4), false)
	is("given back", false, false)
	l.note(lease("7", "a", 4), false)
	l.forget("a")
	is("deleted", false, false)
	l.note(lease("8", "a", 4), false)
	is("created anew", true, false)
}

func TestAShardIsLostAfterAMinute(t *testing.T) {
	clock := testingclock.NewFakePassiveClock(time.Unix(0, 0))
	pass := func(d time.Duration) { clock.SetTime(clock.Now().Add(d)) }
	l := newLiveness(clock)
	if l.lost("a", false) {
		t.Error("it is lost at once")
	}
	pass(lostAfter - time.Second)
	l.lost("a", true)
	pass(time.Second)
	if l.lost("a", false) {
		t.Error("it is lost though it was ready in between")
	}
	pass(lostAfter)
	if !l.lost("a", false) {
		t.Error("it isn't lost after a minute")
	}
}

// T9: a shard is dead when its Lease has ended, while others are renewed: not if no Lease is, as when the host is down.
func TestAShardIsDeadIfOnlyOthersRenewTheirLeases(t *testing.T) {
	clock := testingclock.NewFakePassiveClock(time.Unix(0, 0))
	l, version := newLiveness(clock), 0
	renew := func(name, holder string, atStart bool) {
		version++
		one := lease(strconv.Itoa(version), holder, 3)
		one.Name = name
		l.note(one, atStart)
	}
	pass := func(d time.Duration, alive ...string) {
		for ; d > 0; d -= time.Second {
			clock.SetTime(clock.Now().Add(time.Second))
			for _, name := range alive {
				renew(name, name, false)
			}
		}
	}
	is := func(what string, want bool) {
		t.Helper()
		if got := l.dead("a"); got != want {
			t.Errorf("%s: dead is %v", what, got)
		}
	}
	is("without a Lease", false)
	renew("b", "b", false)
	renew("a", "a", false)
	is("renewed", false)
	pass(2*time.Second, "b")
	is("before the Lease ends", false)
	pass(time.Second, "b")
	is("not renewed for the duration of the Lease", true)
	renew("a", "a", false)
	is("renewed again", false)
	pass(10 * time.Second)
	is("no Lease is renewed", false)
	pass(time.Second, "b")
	is("another one is renewed as the host is back, and this one will be", false)
	pass(2*time.Second, "b")
	is("it isn't", true)

	renew("a", "", false)
	is("given back", false)
	pass(releasedFor-time.Second, "b")
	is("about to be back", false)
	pass(time.Second, "b")
	is("it isn't back", true)

	l = newLiveness(clock)
	renew("a", "a", true)
	renew("b", "b", true)
	pass(2*time.Second, "b")
	is("found at the start", false)
	pass(time.Second, "b")
	is("not renewed since", true)
	l.forget("a")
	is("deleted", false)
}
