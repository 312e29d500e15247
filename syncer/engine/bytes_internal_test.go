// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/bounds"
	"github.com/berth-dev/berth/syncer/hostcache"
	"github.com/berth-dev/berth/syncer/resources"
)

func named(name string) hostcache.Object {
	return hostcache.Object{Resource: resources.ConfigMaps, NamespacedName: types.NamespacedName{Namespace: "berth-demo", Name: name}}
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

// S5: the status of a large pod waits for no pause, but counts in the bytes of a minute.
func TestHostileUpdatesOfALargePodAreBoundedByTheMinuteAlone(t *testing.T) {
	p := newPace(bounds.NewAccount(bounds.Limits{bounds.SyncedBytesPerMinute: 10 * large}), testingclock.NewFakePassiveClock(time.Now()))
	pod := hostcache.Object{Resource: resources.Pods, NamespacedName: types.NamespacedName{Namespace: "berth-demo", Name: "web"}}
	for i := range 5 {
		if err := p.wait(pod, 2*large, i > 0); err != nil {
			t.Fatalf("write %d: %v", i, err)
		}
	}
	var soon *pacedError
	if err := p.wait(pod, 2*large, true); !errors.As(err, &soon) {
		t.Errorf("got %v, want that it waits", err)
	}
}

// patched is a host that counts what it is sent through subresources.
type patched struct {
	client.SubResourceClient
	n int
}

func (c *patched) Update(context.Context, client.Object, ...client.SubResourceUpdateOption) error {
	c.n++
	return nil
}

func (c *patched) Patch(context.Context, client.Object, client.Patch, ...client.SubResourcePatchOption) error {
	c.n++
	return nil
}

// patchedHost is a host of which nothing but its subresources is called.
type patchedHost struct {
	client.Client
	via *patched
}

func (h patchedHost) SubResource(string) client.SubResourceClient { return h.via }
func (h patchedHost) Status() client.SubResourceWriter            { return h.via }

// S5: the host stores the whole pod when a readiness gate flaps, or when it is resized: that is what counts.
func TestHostileFlappingGateOfALargePodIsWithinTheBytesOfAMinute(t *testing.T) {
	const most, changes = 10, 200
	pod := podOnHost("web")
	pod.Spec.Containers = []corev1.Container{{Name: "main", Env: []corev1.EnvVar{{Name: "A", Value: strings.Repeat("x", 100_000)}}}}
	for name, send := range map[string]func(*Writer) error{
		"status": func(w *Writer) error {
			return w.PatchStatus(t.Context(), pod.DeepCopy(), client.RawPatch(types.StrategicMergePatchType, []byte("{}")))
		},
		"resize": func(w *Writer) error { return w.UpdateVia(t.Context(), "resize", pod.DeepCopy()) },
	} {
		t.Run(name, func(t *testing.T) {
			now, wrote := testingclock.NewFakePassiveClock(time.Now()), 0
			account := bounds.NewAccount(bounds.Limits{bounds.SyncedBytesPerMinute: most * int64(pod.Size()), bounds.SyncedBytes: 1 << 20})
			host := &patched{}
			held := newLedger(bounds.SyncedBytes, account, now, func(hostcache.Object) bool { return true }, func(Key) {})
			w := NewWriter(&bounded{patchedHost{via: host}, nil, held, newPace(account, now), func() { wrote++ }}, &hostcache.Host{})
			var soon *pacedError
			for range changes {
				if err := send(w); err != nil && !errors.As(err, &soon) {
					t.Fatal(err)
				}
			}
			if host.n != most || wrote != most || soon == nil {
				t.Errorf("%d changes were %d writes, want %d (%v)", changes, host.n, most, soon)
				return
			}
			if held.total != int64(pod.Size()) {
				t.Errorf("the pod counts as %d bytes, want %d", held.total, pod.Size())
			}
			now.SetTime(now.Now().Add(soon.after))
			if err := send(w); err != nil {
				t.Errorf("it never passes: %v", err)
			}
		})
	}
}

func TestALedgerForgetsWhatNeverCame(t *testing.T) {
	now := testingclock.NewFakePassiveClock(time.Now())
	var retried []Key
	l := newLedger(bounds.IngressHostnames, bounds.NewAccount(bounds.Limits{bounds.IngressHostnames: 10}), now,
		func(o hostcache.Object) bool { return o == named("there") }, func(key Key) { retried = append(retried, key) })
	for _, name := range []string{"there", "not"} {
		if _, err := l.Take(named(name), 5); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := l.Take(named("more"), 5); !errors.Is(err, bounds.ErrExceeded) {
		t.Fatalf("got %v", err)
	}
	l.Keep(thing("more"))
	if _, err := l.Take(named("there"), 5); err != nil {
		t.Errorf("what is there already may not be what it is: %v", err)
	}
	now.SetTime(now.Now().Add(unshown + time.Second))
	undo, err := l.Take(named("more"), 5)
	if err != nil {
		t.Fatal(err)
	}
	undo()
	if len(retried) != 1 || l.total != 5 {
		t.Errorf("%v are tried again, %d in use", retried, l.total)
	}
	var none *ledger
	if _, err := none.Take(named("any"), 1<<50); err != nil {
		t.Error(err)
	}
}

// L3: each of 30,000 objects that were refused had all that were not looked at, again with each try.
func TestHostileRefusalsDoNotCostWhatIsCounted(t *testing.T) {
	now := testingclock.NewFakePassiveClock(time.Now())
	looked := 0
	l := newLedger(bounds.SyncedBytes, bounds.NewAccount(bounds.Limits{bounds.SyncedBytes: 100}), now,
		func(hostcache.Object) bool { looked++; return true }, func(Key) {})
	for i := range 100 {
		if _, err := l.Take(named(strconv.Itoa(i)), 1); err != nil {
			t.Fatal(err)
		}
	}
	now.SetTime(now.Now().Add(2 * unshown))
	for range 10 {
		if _, err := l.Take(named("more"), 1); !errors.Is(err, bounds.ErrExceeded) {
			t.Fatalf("got %v", err)
		}
	}
	if looked != 100 {
		t.Errorf("%d objects were looked at, want 100", looked)
	}
}

// A host object counts as much in the shared watches, which have no data, as when it is sent.
func TestTheSharedWatchesKnowTheSizeOfData(t *testing.T) {
	data, held := strings.Repeat("x", 100_000), hostcache.NewRouter("", nil).Trim
	for _, host := range []func() (sent, held int64){
		func() (int64, int64) {
			o := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "c"}, Data: map[string]string{"a": data}}
			return sizeOf(o), sizeOf(held(o.DeepCopy()))
		},
		func() (int64, int64) {
			o := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "s"}, Data: map[string][]byte{"a": []byte(data)}}
			return sizeOf(o), sizeOf(held(o.DeepCopy()))
		},
	} {
		if sent, held := host(); held < sent || held > sent+300 {
			t.Errorf("it is %d when it is sent and %d when it is held", sent, held)
		}
	}
}
