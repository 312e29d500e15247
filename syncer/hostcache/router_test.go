// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package hostcache

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/syncer/resources"
	"github.com/berth-dev/berth/translate"
)

func hostPod(space, name string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "berth-" + space, Name: name, Labels: map[string]string{translate.LabelSpace: space},
	}}
}

// newTestRouter gets its events from its test.
func newTestRouter() *Router { return NewRouter("", nil) }

func put(t *testing.T, f *Router, objs ...client.Object) {
	t.Helper()
	for _, o := range objs {
		if err := f.Add(o); err != nil {
			t.Error(err)
		}
	}
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

func subscribe(t *testing.T, f *Router, space string, s *seen) (cancel func()) {
	t.Helper()
	cancel, err := f.Subscribe(space, s.receive)
	if err != nil {
		t.Fatal(err)
	}
	return cancel
}

// T2: what happens to one tenant's host objects is no other's business.
func TestEventsReachTheirSpaceOnly(t *testing.T) {
	f := newTestRouter()
	var a, b seen
	defer subscribe(t, f, "a", &a)()
	defer subscribe(t, f, "b", &b)()
	put(t, f, hostPod("a", "one"), hostPod("b", "two"), hostPod("c", "of a space that is not here"),
		&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "of no space", Namespace: "berth-a"}})
	if err := f.Delete(hostPod("a", "gone")); err != nil {
		t.Error(err)
	}
	if f.Add("no object") == nil {
		t.Error("what is no object was taken")
	}
	a.want(t, "a", "gone", "one")
	b.want(t, "b", "two")
}

func TestWhatConcernsEverySpaceReachesAll(t *testing.T) {
	f := newTestRouter()
	put(t, f, &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "before"}})
	var a, b seen
	defer subscribe(t, f, "a", &a)()
	put(t, f, &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "between"}})
	defer subscribe(t, f, "b", &b)()
	put(t, f, &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "after"}})
	a.want(t, "a", "after", "before", "between")
	b.want(t, "b", "after", "before", "between")
}

func TestASubscriptionBeginsWithWhatIsThereAndEnds(t *testing.T) {
	f := newTestRouter()
	put(t, f, hostPod("a", "one"), hostPod("a", "two"), hostPod("b", "other"))
	var s seen
	cancel := subscribe(t, f, "a", &s)
	s.want(t, "at first", "one", "two")
	if _, err := f.Subscribe("a", s.receive); err == nil {
		t.Error("a space is synced twice")
	}
	put(t, f, hostPod("a", "three"))
	s.want(t, "then", "three")
	cancel()
	put(t, f, hostPod("a", "four"))
	s.want(t, "after the end")
	defer subscribe(t, f, "a", &s)()
	s.want(t, "again", "four", "one", "three", "two")
}

// An object that comes while a space subscribes is not missed, and what is
// delivered meanwhile never goes astray.
func TestSubscribingMissesNothing(t *testing.T) {
	for range 200 {
		f := newTestRouter()
		var wg sync.WaitGroup
		spaces := []string{"a", "b", "c"}
		all := make([]seen, len(spaces))
		for i, space := range spaces {
			wg.Go(func() { put(t, f, hostPod(space, "pod-of-"+space)) })
			wg.Go(func() {
				cancel, err := f.Subscribe(space, all[i].receive)
				if err != nil {
					t.Error(err)
					return
				}
				cancel()
				if _, err := f.Subscribe(space, all[i].receive); err != nil {
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
		"storage class":     {"claims of all spaces name it", &storagev1.StorageClass{}, EverySpace},
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
		got := trim(e)
		if text := fmt.Sprint(got); strings.Contains(text, "theirs") || e == ours && !strings.Contains(text, "ours") {
			t.Errorf("kept %v", text)
		}
		o := got.(*corev1.Event)
		if len(o.ManagedFields) > 0 || o.Name != "e" || o.Namespace != e.Namespace || o.ResourceVersion != e.ResourceVersion {
			t.Errorf("kept %v", o.ObjectMeta)
		}
	}
}

// Whoever reads while a sleeping space's objects are packed anew finds them, by
// name and by index, and what changes meanwhile stays changed.
func TestPackingAnewIsNotSeen(t *testing.T) {
	f := NewRouter(resources.Pods, nil)
	pod := func(name string, version int) *corev1.Pod {
		p := hostPod("a", name)
		p.ResourceVersion = fmt.Sprint(version)
		p.Annotations = map[string]string{translate.AnnotationName: name, translate.AnnotationNamespace: "default"}
		p.Labels[translate.LabelNamespace] = "default"
		p.Status.PodIP = "10.0.0.1"
		return p
	}
	put(t, f, pod("still", 1), pod("changes", 1), hostPod("b", "other"))
	var s seen
	defer subscribe(t, f, "a", &s)()
	s.want(t, "at first", "changes", "still")
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		defer close(stop)
		for i := range 500 {
			if err := errors.Join(f.Repack("a"), f.Repack("gone")); err != nil {
				t.Error(err)
			}
			put(t, f, pod("changes", i+2))
			if p, ok := f.Get("berth-a/changes").(*corev1.Pod); !ok || p.ResourceVersion != fmt.Sprint(i+2) {
				t.Errorf("the latest is %v, want version %d", p, i+2)
			}
		}
	})
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			if f.Get("berth-a/still") == nil || len(f.By(indexAddress, "10.0.0.1")) != 2 || len(f.By(IndexNamespace, "a/default")) != 2 {
				t.Error("an object was gone for a moment")
			}
		}
	})
	wg.Wait()
	if before := f.Get("berth-a/still"); before != nil {
		if err := f.Repack("a"); err != nil {
			t.Fatal(err)
		}
		after := f.Get("berth-a/still")
		if after == before || !equality.Semantic.DeepEqual(after, before) {
			t.Errorf("packed anew it is %v, was %v", after, before)
		}
	}
	if got := f.Get("berth-b/other"); got == nil {
		t.Error("another space's object is gone")
	}
}
