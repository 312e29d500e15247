// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package heapsize_test

import (
	"fmt"
	"runtime"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
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

// L3: of an Ingress that leads to a thousand Services, the syncer's index takes many times what the Ingress takes.
func TestWhatAnObjectNamesIsCounted(t *testing.T) {
	var objects []*networkingv1.Ingress
	var counted int64
	for i := range 40 {
		http := &networkingv1.HTTPIngressRuleValue{}
		for j := range 1000 {
			http.Paths = append(http.Paths, networkingv1.HTTPIngressPath{Backend: networkingv1.IngressBackend{
				Service: &networkingv1.IngressServiceBackend{Name: fmt.Sprintf("s%d-%d", i, j)},
			}})
		}
		o := &networkingv1.Ingress{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: fmt.Sprint("o", i)}}
		o.Spec.Rules = []networkingv1.IngressRule{{IngressRuleValue: networkingv1.IngressRuleValue{HTTP: http}}}
		objects = append(objects, o)
		counted += heapsize.Cached(o)
	}
	index := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{"services": func(obj any) (names []string, _ error) {
		for _, path := range obj.(*networkingv1.Ingress).Spec.Rules[0].HTTP.Paths {
			names = append(names, "n/"+path.Backend.Service.Name)
		}
		return names, nil
	}})
	before := heap()
	for _, o := range objects {
		if err := index.Add(o); err != nil {
			t.Fatal(err)
		}
	}
	if took := heap() - before; took > counted {
		t.Errorf("the index takes %d KiB, and %d KiB are counted", took>>10, counted>>10)
	}
	runtime.KeepAlive(index)

	many, one := objects[0].DeepCopy(), objects[0].DeepCopy()
	for i := range one.Spec.Rules[0].HTTP.Paths {
		one.Spec.Rules[0].HTTP.Paths[i].Backend.Service.Name = many.Spec.Rules[0].HTTP.Paths[i].Backend.Service.Name[:2]
	}
	if more := heapsize.Cached(many) - heapsize.Cached(one); more < 350_000 {
		t.Errorf("a thousand names count %d bytes more than one", more)
	}
	named, none := pod(0, 0, 0), pod(0, 0, 0)
	for i := range 100 {
		from := corev1.EnvFromSource{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: fmt.Sprint("c", i)}}}
		named.Spec.Containers = append(named.Spec.Containers, corev1.Container{EnvFrom: []corev1.EnvFromSource{from}})
		none.Spec.Containers = append(none.Spec.Containers, corev1.Container{EnvFrom: []corev1.EnvFromSource{{}}})
	}
	if more := heapsize.Cached(named) - heapsize.Cached(none); more < 35_000 {
		t.Errorf("a hundred names of a pod count %d bytes", more)
	}
}

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
