// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package heapsize_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/berth-dev/berth/internal/heapsize"
)

func pod(owners, managers, volumes int) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: "p", OwnerReferences: make([]metav1.OwnerReference, owners), ManagedFields: make([]metav1.ManagedFieldsEntry, managers),
		},
		Spec: corev1.PodSpec{Volumes: make([]corev1.Volume, volumes)},
	}
}

func TestAnObjectsSizeIsOfWhatIsKeptOfIt(t *testing.T) {
	least := heapsize.Cached(pod(0, 0, 0))
	if got := heapsize.Cached(pod(0, 100, 0)); got != least {
		t.Errorf("managed fields, which no informer keeps, count %d bytes", got-least)
	}
	if got := heapsize.Cached(pod(100, 0, 0)) - least; got < 60_000 || got > 100_000 {
		t.Errorf("a hundred owners count %d bytes", got)
	}
	if got := heapsize.Cached(pod(0, 0, 1000)) - least; got < 200_000 || got > 300_000 {
		t.Errorf("a thousand empty volumes count %d bytes", got)
	}
	for _, none := range []any{nil, "text", cache.DeletedFinalStateUnknown{}} {
		if got := heapsize.Cached(none); got != 0 {
			t.Errorf("%#v counts %d bytes", none, got)
		}
	}
}

func TestACounterCountsWhatItsInformerHolds(t *testing.T) {
	var held int64
	informer := cache.NewSharedInformer(&cache.ListWatch{}, &corev1.Pod{}, 0)
	counter, err := heapsize.Count(informer, func(bytes int64) { held += bytes })
	if err != nil {
		t.Fatal(err)
	}
	small, large := pod(0, 0, 1), pod(0, 0, 100)
	counter.OnAdd(small, true)
	counter.OnAdd(small, false)
	counter.OnUpdate(small, large)
	if want := heapsize.Cached(small) + heapsize.Cached(large); held != want {
		t.Errorf("a small and a large pod count %d bytes, want %d", held, want)
	}
	counter.OnDelete(small)
	counter.OnDelete(cache.DeletedFinalStateUnknown{Obj: large})
	if held != 0 {
		t.Errorf("no object counts %d bytes", held)
	}
	counter.OnAdd(small, false)
	counter.Stop()
	counter.OnAdd(small, false)
	if held != 0 {
		t.Errorf("a stopped counter counts %d bytes", held)
	}
}
