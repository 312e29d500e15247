// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package hostcache

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/translate"
)

// sleepingRouter tells a host's sleepers of what its test puts in.
func sleepingRouter() (*Host, *Router) {
	h := &Host{}
	return h, NewRouter("", h.sleepers.changed)
}

// T8: what is, and what is no change of a space's host objects.
func TestOnlyChangesOfASpacesObjectsWakeIt(t *testing.T) {
	pod := func(version string) *corev1.Pod {
		p := hostPod("demo", "p")
		p.UID, p.ResourceVersion = "u", version
		return p
	}
	volume := func(namespace string) *corev1.PersistentVolume {
		v := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "v", ResourceVersion: "1" + namespace}}
		if namespace != "" {
			v.Spec.ClaimRef = &corev1.ObjectReference{Namespace: namespace, Name: "c"}
		}
		return v
	}
	impostor := pod("2")
	impostor.Namespace = "berth-other"
	taken, another, unlabelled := pod("2"), pod("1"), pod("1")
	taken.Labels, another.UID, unlabelled.Labels = nil, "v", nil
	tests := map[string]struct {
		reason string
		before client.Object // before the space slept
		event  func(*Router) error
		wakes  bool
	}{
		"created":             {"by others, as the space sleeps", nil, func(f *Router) error { return f.Add(pod("1")) }, true},
		"changed":             {"its version is another", pod("1"), func(f *Router) error { return f.Update(pod("2")) }, true},
		"made anew":           {"its UID is another", pod("1"), func(f *Router) error { return f.Replace([]any{another}, "1") }, true},
		"listed again":        {"a watch that was cut shows all there is", pod("1"), func(f *Router) error { return f.Replace([]any{pod("1")}, "9") }, false},
		"listed for once":     {"it came while the watch was cut", nil, func(f *Router) error { return f.Replace([]any{pod("1")}, "9") }, true},
		"deleted":             {"", pod("1"), func(f *Router) error { return f.Delete(pod("1")) }, true},
		"deleted unseen":      {"while the watch was cut", pod("1"), func(f *Router) error { return f.Replace(nil, "9") }, true},
		"label taken":         {"it is not the space's any more", pod("1"), func(f *Router) error { return f.Update(taken) }, true},
		"of another":          {"", nil, func(f *Router) error { return f.Add(hostPod("other", "p")) }, false},
		"says that it is":     {"it lies in another's namespace", nil, func(f *Router) error { return f.Add(impostor) }, false},
		"not labelled":        {"it is not synced", nil, func(f *Router) error { return f.Add(unlabelled) }, false},
		"volume bound":        {"", volume(""), func(f *Router) error { return f.Update(volume("berth-demo")) }, true},
		"volume of another":   {"", nil, func(f *Router) error { return f.Add(volume("berth-other")) }, false},
		"volume of the space": {"", nil, func(f *Router) error { return f.Add(volume("berth-demo")) }, true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			h, f := sleepingRouter()
			wakes := 0
			wake := func() { wakes++ }
			stop := h.OnChange("demo", wake)
			var first []any
			if test.before != nil {
				first = append(first, test.before)
			}
			if err := f.Replace(first, "1"); err != nil {
				t.Fatal(err)
			}
			if wakes != 0 {
				t.Error("woken by what was there when the watch began")
			}
			for range 3 {
				if err := test.event(f); err != nil {
					t.Fatal(err)
				}
			}
			if want := map[bool]int{true: 1}[test.wakes]; wakes != want {
				t.Errorf("%s: woken %d times, want %d", test.reason, wakes, want)
			}
			stop()
			if err := test.event(f); err != nil {
				t.Fatal(err)
			}
			if len(h.sleepers.wakes) != 0 {
				t.Error("an entry is left over")
			}
		})
	}
}

func TestARegistrationThatHasEndedWakesNobody(t *testing.T) {
	h, f := sleepingRouter()
	var first, second int
	stopFirst := h.OnChange("demo", func() { first++ })
	stopSecond := h.OnChange("demo", func() { second++ })
	stopFirst() // the second has taken its place: it must not end that
	f.Deliver(hostPod("demo", "p"), true)
	stopSecond()
	f.Deliver(hostPod("demo", "p"), true)
	if first != 0 || second != 1 {
		t.Errorf("the first was woken %d times, the second %d", first, second)
	}
	// From within wake a space may be registered again.
	h.OnChange("demo", func() { stopFirst = h.OnChange("demo", func() { first++ }) })
	f.Deliver(hostPod("demo", "p"), true)
	f.Deliver(hostPod("demo", "p"), true)
	if first != 1 || len(h.sleepers.wakes) != 0 {
		t.Errorf("woken %d times, %d entries are left", first, len(h.sleepers.wakes))
	}
}

// However many changes come at once, and whoever registers meanwhile, a
// registration wakes once.
func TestAFloodOfChangesWakesOnce(t *testing.T) {
	h, f := sleepingRouter()
	const spaces = 1000
	var wakes [spaces]atomic.Int64
	for i := range spaces {
		h.OnChange(fmt.Sprint("s", i), func() { wakes[i].Add(1) })
	}
	var flood sync.WaitGroup
	for range 8 {
		flood.Go(func() {
			for i := range 100 {
				f.Deliver(hostPod(fmt.Sprint("s", i), "p"), true)
			}
		})
	}
	flood.Wait()
	for i := range wakes {
		if n, want := wakes[i].Load(), map[bool]int64{true: 1}[i < 100]; n != want {
			t.Errorf("space %d was woken %d times, want %d", i, n, want)
		}
	}
	if len(h.sleepers.wakes) != spaces-100 {
		t.Errorf("%d are registered", len(h.sleepers.wakes))
	}
}

// A registration that takes the place of another while a change comes loses no
// wake: either the one or the other is woken.
func TestAChangeIsNotLostBetweenTwoRegistrations(t *testing.T) {
	h, f := sleepingRouter()
	for range 5000 {
		var wakes atomic.Int64
		wake := func() { wakes.Add(1) }
		h.OnChange("demo", wake)
		var wg sync.WaitGroup
		wg.Go(func() { f.Deliver(hostPod("demo", "p"), true) })
		stop := h.OnChange("demo", wake)
		wg.Wait()
		stop()
		if wakes.Load() == 0 {
			t.Fatal("nobody was woken")
		}
	}
}

func TestVersionsOfOtherClustersAreNoNumbers(t *testing.T) {
	for text, want := range map[string]uint64{"7": 7, "": 0, "abc": 0, "18446744073709551615": 1<<64 - 1, "-1": 0} {
		if got := Version(text); got != want {
			t.Errorf("version %q is %d, want %d", text, got, want)
		}
	}
	if got := spaceOf(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Labels: map[string]string{translate.LabelSpace: "demo"}}}); got != "" {
		t.Errorf("a pod of the host's own is taken for that of space %q", got)
	}
}
