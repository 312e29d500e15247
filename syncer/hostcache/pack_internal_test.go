// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package hostcache

import (
	"math/rand/v2"
	"testing"
	"unsafe"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/apitesting/fuzzer"
	"k8s.io/apimachinery/pkg/api/equality"
	metafuzzer "k8s.io/apimachinery/pkg/apis/meta/fuzzer"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/kubernetes/scheme"
)

// What is packed says the same as before: any object, any text.
func TestPackedObjectsSayTheSame(t *testing.T) {
	fill := fuzzer.FuzzerFor(metafuzzer.Funcs, oldSource{rand.NewPCG(1, 2)}, serializer.NewCodecFactory(scheme.Scheme))
	for range 200 {
		for _, object := range []runtime.Object{
			&corev1.Pod{}, &corev1.Service{}, &corev1.PersistentVolumeClaim{}, &corev1.PersistentVolume{}, &corev1.Event{}, &discoveryv1.EndpointSlice{},
		} {
			fill.Fill(object)
			before := object.DeepCopyObject()
			Pack(object)
			if !equality.Semantic.DeepEqual(before, object) {
				t.Fatalf("a packed %T differs", object)
			}
		}
	}
}

// oldSource is a source of upstream's, which still wants the old package's.
type oldSource struct{ pcg *rand.PCG }

func (s oldSource) Int63() int64    { return int64(s.pcg.Uint64() >> 1) }
func (s oldSource) Seed(seed int64) { s.pcg.Seed(uint64(seed), 0) }

// T8: an object's texts are one piece of memory, and the frequent ones nobody's own.
func TestTextsOfAPackedObjectLieTogether(t *testing.T) {
	service := &corev1.Service{}
	service.Name, service.UID, service.ResourceVersion = "demo--default--kubernetes", "uid", "12"
	service.Labels = map[string]string{"berth.dev/space": "demo"}
	service.Spec.ClusterIP, service.Spec.Type = "10.96.0.1", corev1.ServiceType([]byte("ClusterIP"))
	Pack(service)
	begin := uintptr(unsafe.Pointer(unsafe.StringData(service.Name)))
	for _, text := range []string{string(service.UID), service.ResourceVersion, service.Labels["berth.dev/space"], service.Spec.ClusterIP} {
		if at := uintptr(unsafe.Pointer(unsafe.StringData(text))); at < begin-64 || at > begin+64 {
			t.Errorf("%q is not near the name", text)
		}
	}
	if unsafe.StringData(string(service.Spec.Type)) != unsafe.StringData(words()["ClusterIP"]) {
		t.Error("the type has a copy of its own")
	}
}
