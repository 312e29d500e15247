// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package hostpolicy_test

import (
	"slices"
	"testing"

	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/internal/testfields"
	"github.com/berth-dev/berth/isolation/hostpolicy"
	"github.com/berth-dev/berth/translate/volume"
)

// S1: the classes that translate makes pass, and of all others' fields none does.
func TestHostileClassesAreRefusedByThePolicies(t *testing.T) {
	e := newEvaluator(t, hostpolicy.Policy{Validations: slices.Concat(hostpolicy.Classes(), hostpolicy.ClassFields())}, nil)
	e.namespace = nil
	of := func(group, resource, kind string) write {
		return write{resource: schema.GroupVersionResource{Group: group, Version: "v1", Resource: resource}, kind: kind}
	}
	priority, storage := of("scheduling.k8s.io", "priorityclasses", "PriorityClass"), of("storage.k8s.io", "storageclasses", "StorageClass")
	priority.object = space().ExportedPriorityClass(&schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "high", UID: "u"}, Value: 7, GlobalDefault: true, Description: "d"}, 100, true)
	storage.object = space().ExportedStorageClass(&storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "fast", UID: "u"}, Provisioner: "p", Parameters: map[string]string{"a": "b"}})
	persistent := of("", "persistentvolumes", "PersistentVolume")
	persistent.object = volume.ToHost(space(), ownVolume("mine/more"))
	for _, o := range []client.Object{priority.object, storage.object, persistent.object} { // as the syncer does
		o.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "v1", Kind: "Namespace", Name: "berth-mine", UID: "u"}})
	}
	for _, w := range []write{priority, storage, persistent} {
		if message, _ := e.refuses(w); message != "" {
			t.Errorf("%s: %s", w.kind, message)
		}
		again := w
		again.old = w.object
		if message, _ := e.refuses(again); message != "" {
			t.Errorf("%s, again: %s", w.kind, message)
		}
	}
	for _, r := range testfields.Resources() {
		if !r.InCluster {
			continue
		}
		for _, s := range r.Sites {
			o := r.Made()
			s.Set(o)
			if message, _ := e.refuses(write{resource: r.GroupVersionResource, kind: r.Kind, object: o}); message == "" && s.Never == nil {
				t.Errorf("%s: %s: what Berth never writes is let through", r.Resource, s)
			}
		}
	}
}
