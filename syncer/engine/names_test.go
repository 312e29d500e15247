// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/berth-dev/berth/syncer/resources"
)

// A tenant that makes and changes any number of config maps that no pod refers
// to gives the syncer nothing to do and nothing to remember.
func TestOnlyWhatPodsReferToIsLookedAt(t *testing.T) {
	informer := cache.NewSharedIndexInformer(&cache.ListWatch{}, &corev1.Pod{}, 0, cache.Indexers{})
	if err := IndexReferences(informer); err != nil {
		t.Fatal(err)
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p"}, Spec: corev1.PodSpec{
		Containers: []corev1.Container{{Name: "c", EnvFrom: []corev1.EnvFromSource{
			{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "used"}}},
			{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "missing"}}},
		}}},
	}}
	if err := informer.GetIndexer().Add(pod); err != nil {
		t.Fatal(err)
	}
	var enqueued []string
	w := &nameWatch{resource: resources.ConfigMaps, used: usage{index: IndexConfigMaps, in: []cache.SharedIndexInformer{informer}}, enqueue: func(key Key) { enqueued = append(enqueued, key.String()) }}
	store := (*changedNames)(w)
	expect := func(what string, err error, want ...string) {
		t.Helper()
		slices.Sort(enqueued)
		if err != nil || !slices.Equal(enqueued, want) {
			t.Errorf("%s: looked at %v, want %v (%v)", what, enqueued, want, err)
		}
		enqueued = nil
	}
	object := func(namespace, name string) *metav1.PartialObjectMetadata {
		return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	}
	expect("made", store.Add(object("default", "used")), "default/used")
	expect("changed", store.Update(object("default", "used")), "default/used")
	expect("deleted", store.Delete(object("default", "used")), "default/used")
	for range 1000 {
		expect("changed, used by nobody", store.Update(object("default", "other")))
	}
	expect("of another namespace", store.Add(object("other", "used")))
	// What was deleted while the watch was cut is missing from the list.
	expect("listed", store.Replace([]any{object("default", "used"), object("default", "other")}, "1"), "default/missing", "default/used")
	w.close()
	expect("closed", store.Update(object("default", "used")))
}
