// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package syncer

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/berth-dev/berth/translate"
)

func sleepingFanout(t *testing.T, of cache.SharedIndexInformer) (*Host, *fanout) {
	t.Helper()
	h := &Host{}
	f, err := newFanout(of, spaceOf, h.sleepers.changed)
	if err != nil {
		t.Fatal(err)
	}
	return h, f
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
	taken := pod("2")
	taken.Labels = nil
	tests := map[string]struct {
		reason string
		event  func(*fanout)
		wakes  bool
	}{
		"created":             {"by others, as the space sleeps", func(f *fanout) { f.OnAdd(pod("1"), false) }, true},
		"listed":              {"it was there when the watch began", func(f *fanout) { f.OnAdd(pod("1"), true) }, false},
		"changed":             {"its version is another", func(f *fanout) { f.OnUpdate(pod("1"), pod("2")) }, true},
		"listed again":        {"a watch that was cut shows all there is", func(f *fanout) { f.OnUpdate(pod("1"), pod("1")) }, false},
		"deleted":             {"", func(f *fanout) { f.OnDelete(pod("1")) }, true},
		"deleted unseen":      {"while the watch was cut", func(f *fanout) { f.OnDelete(cache.DeletedFinalStateUnknown{Obj: pod("1")}) }, true},
		"label taken":         {"it is not the space's any more", func(f *fanout) { f.OnUpdate(pod("1"), taken) }, true},
		"of another":          {"", func(f *fanout) { f.OnAdd(hostPod("other", "p"), false) }, false},
		"says that it is":     {"it lies in another's namespace", func(f *fanout) { f.OnAdd(impostor, false) }, false},
		"not labelled":        {"it is not synced", func(f *fanout) { f.OnAdd(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "berth-demo"}}, false) }, false},
		"volume bound":        {"", func(f *fanout) { f.OnUpdate(volume(""), volume("berth-demo")) }, true},
		"volume of another":   {"", func(f *fanout) { f.OnAdd(volume("berth-other"), false) }, false},
		"volume of the space": {"", func(f *fanout) { f.OnAdd(volume("berth-demo"), false) }, true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			h, f := sleepingFanout(t, cache.NewSharedIndexInformer(&cache.ListWatch{}, &corev1.Pod{}, 0, cache.Indexers{}))
			wakes := 0
			stop := h.OnChange("demo", func() { wakes++ })
			for range 3 {
				test.event(f)
			}
			if want := map[bool]int{true: 1}[test.wakes]; wakes != want {
				t.Errorf("%s: woken %d times, want %d", test.reason, wakes, want)
			}
			stop()
			test.event(f)
			if len(h.sleepers.wakes) != 0 {
				t.Error("an entry is left over")
			}
		})
	}
}

func TestARegistrationThatHasEndedWakesNobody(t *testing.T) {
	h, f := sleepingFanout(t, cache.NewSharedIndexInformer(&cache.ListWatch{}, &corev1.Pod{}, 0, cache.Indexers{}))
	var first, second int
	stopFirst := h.OnChange("demo", func() { first++ })
	stopSecond := h.OnChange("demo", func() { second++ })
	stopFirst() // the second has taken its place: it must not end that
	f.OnAdd(hostPod("demo", "p"), false)
	stopSecond()
	f.OnAdd(hostPod("demo", "p"), false)
	if first != 0 || second != 1 {
		t.Errorf("the first was woken %d times, the second %d", first, second)
	}
	// From within wake a space may be registered again.
	h.OnChange("demo", func() { stopFirst = h.OnChange("demo", func() { first++ }) })
	f.OnAdd(hostPod("demo", "p"), false)
	f.OnAdd(hostPod("demo", "p"), false)
	if first != 1 || len(h.sleepers.wakes) != 0 {
		t.Errorf("woken %d times, %d entries are left", first, len(h.sleepers.wakes))
	}
}

// However many changes come at once, and whoever registers meanwhile, a
// registration wakes once.
func TestAFloodOfChangesWakesOnce(t *testing.T) {
	h, f := sleepingFanout(t, cache.NewSharedIndexInformer(&cache.ListWatch{}, &corev1.Pod{}, 0, cache.Indexers{}))
	const spaces = 1000
	var wakes [spaces]atomic.Int64
	for i := range spaces {
		h.OnChange(fmt.Sprint("s", i), func() { wakes[i].Add(1) })
	}
	var flood sync.WaitGroup
	for range 8 {
		flood.Go(func() {
			for i := range 100 {
				f.OnDelete(hostPod(fmt.Sprint("s", i), "p"))
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

func TestVersionsOfOtherClustersAreNoNumbers(t *testing.T) {
	for text, want := range map[string]uint64{"7": 7, "": 0, "abc": 0, "18446744073709551615": 1<<64 - 1, "-1": 0} {
		if got := version(text); got != want {
			t.Errorf("version %q is %d, want %d", text, got, want)
		}
	}
	if got := spaceOf(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Labels: map[string]string{translate.LabelSpace: "demo"}}}); got != "" {
		t.Errorf("a pod of the host's own is taken for that of space %q", got)
	}
}
