// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package syncer

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/translate"
)

func hostPod(space, name string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "berth-" + space, Name: name, Labels: map[string]string{translate.LabelSpace: space},
	}}
}

// newTestFanout is fed by its test: its informer watches nothing.
func newTestFanout(t *testing.T, of runtime.Object) *fanout {
	t.Helper()
	f, err := newFanout(cache.NewSharedIndexInformer(&cache.ListWatch{}, of, 0, cache.Indexers{}), spaceOf, nil)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// seen collects what one space receives.
type seen struct {
	mu    sync.Mutex
	names []string
}

func (s *seen) receive(o client.Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.names = append(s.names, o.GetName())
}

func (s *seen) want(t *testing.T, what string, names ...string) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	got := slices.Sorted(slices.Values(s.names))
	if !slices.Equal(got, names) {
		t.Errorf("%s: received %v, want %v", what, got, names)
	}
	s.names = nil
}

func subscribe(t *testing.T, f *fanout, space string, s *seen) (cancel func()) {
	t.Helper()
	cancel, err := f.subscribe(space, s.receive)
	if err != nil {
		t.Fatal(err)
	}
	return cancel
}

// T2: what happens to one tenant's host objects is no other's business.
func TestEventsReachTheirSpaceOnly(t *testing.T) {
	f := newTestFanout(t, &corev1.Pod{})
	var a, b seen
	defer subscribe(t, f, "a", &a)()
	defer subscribe(t, f, "b", &b)()
	f.deliver(hostPod("a", "one"), true)
	f.deliver(hostPod("b", "two"), true)
	f.deliver(hostPod("c", "of a space that is not here"), true)
	f.deliver(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "of no space", Namespace: "berth-a"}}, true)
	f.deliver(cache.DeletedFinalStateUnknown{Key: "berth-a/gone", Obj: hostPod("a", "gone")}, true)
	f.deliver(cache.DeletedFinalStateUnknown{Key: "berth-a/unknown"}, true)
	f.deliver("no object", true)
	a.want(t, "a", "gone", "one")
	b.want(t, "b", "two")
}

func TestWhatConcernsEverySpaceReachesAll(t *testing.T) {
	f := newTestFanout(t, &storagev1.StorageClass{})
	if err := f.informer.GetIndexer().Add(&storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "before"}}); err != nil {
		t.Fatal(err)
	}
	var a, b seen
	defer subscribe(t, f, "a", &a)()
	f.deliver(&storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "between"}}, true)
	defer subscribe(t, f, "b", &b)()
	f.deliver(&storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "after"}}, true)
	a.want(t, "a", "after", "before", "between")
	b.want(t, "b", "after", "before")
}

func TestASubscriptionBeginsWithWhatIsThereAndEnds(t *testing.T) {
	f := newTestFanout(t, &corev1.Pod{})
	for _, pod := range []*corev1.Pod{hostPod("a", "one"), hostPod("a", "two"), hostPod("b", "other")} {
		if err := f.informer.GetIndexer().Add(pod); err != nil {
			t.Fatal(err)
		}
	}
	var s seen
	cancel := subscribe(t, f, "a", &s)
	s.want(t, "at first", "one", "two")
	if _, err := f.subscribe("a", s.receive); err == nil {
		t.Error("a space is synced twice")
	}
	f.deliver(hostPod("a", "three"), true)
	s.want(t, "then", "three")
	cancel()
	f.deliver(hostPod("a", "four"), true)
	s.want(t, "after the end")
	defer subscribe(t, f, "a", &s)()
	s.want(t, "again", "one", "two")
}

// An object that comes while a space subscribes is not missed, and what is
// delivered meanwhile never goes astray.
func TestSubscribingMissesNothing(t *testing.T) {
	for range 200 {
		f := newTestFanout(t, &corev1.Pod{})
		var wg sync.WaitGroup
		spaces := []string{"a", "b", "c"}
		all := make([]seen, len(spaces))
		for i, space := range spaces {
			wg.Go(func() {
				pod := hostPod(space, "pod-of-"+space)
				if err := f.informer.GetIndexer().Add(pod); err != nil {
					t.Error(err)
				}
				f.deliver(pod, true)
			})
			wg.Go(func() {
				cancel, err := f.subscribe(space, all[i].receive)
				if err != nil {
					t.Error(err)
					return
				}
				cancel()
				if _, err := f.subscribe(space, all[i].receive); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		for i, space := range spaces {
			if len(all[i].names) == 0 {
				t.Fatalf("space %s missed its pod", space)
			}
			for _, name := range all[i].names {
				if name != "pod-of-"+space {
					t.Fatalf("space %s received %s", space, name)
				}
			}
		}
	}
}

func TestTheSpaceOfAHostObjectIsKnown(t *testing.T) {
	event := func(namespace string) client.Object {
		return &corev1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "e"}}
	}
	tests := map[string]struct {
		reason string
		object client.Object
		want   string
	}{
		"labelled":          {"its label says so", hostPod("demo", "p"), "demo"},
		"not labelled":      {"foreign, also in a space's namespace", &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "berth-demo"}}, ""},
		"event of a space":  {"events bear no label; their namespace says so", event("berth-demo"), "demo"},
		"event of the host": {"none of a space's business", event("kube-system"), ""},
		"event of a cousin": {"a namespace that only begins alike", event("berthdemo"), ""},
		"storage class":     {"claims of all spaces name it", &storagev1.StorageClass{}, everySpace},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := spaceOf(test.object); got != test.want {
				t.Errorf("%s: got %q, want %q", test.reason, got, test.want)
			}
		})
	}
}

// Foreign events are most of a cluster's: their texts would only cost memory.
func TestTheSharedWatchesKeepOnlyWhatIsRead(t *testing.T) {
	fields := []metav1.ManagedFieldsEntry{{Manager: "m"}}
	ours := &corev1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: "berth-demo", Name: "e", ManagedFields: fields}, Message: "ours"}
	theirs := &corev1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "e", UID: "u", ResourceVersion: "7", ManagedFields: fields}, Message: "theirs"}
	for _, e := range []*corev1.Event{ours, theirs} {
		got, err := trim(e)
		if err != nil {
			t.Fatal(err)
		}
		if text := fmt.Sprint(got); strings.Contains(text, "theirs") || e == ours && !strings.Contains(text, "ours") {
			t.Errorf("kept %v", text)
		}
		o := got.(*corev1.Event)
		if len(o.ManagedFields) > 0 || o.Name != "e" || o.Namespace != e.Namespace || o.ResourceVersion != e.ResourceVersion {
			t.Errorf("kept %v", o.ObjectMeta)
		}
	}
	if _, err := trim(cache.DeletedFinalStateUnknown{}); err != nil {
		t.Error(err)
	}
}
