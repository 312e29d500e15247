// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"context"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/kubernetes/pkg/apis/apps"

	"github.com/berth-dev/berth/bounds"
	"github.com/berth-dev/berth/vcluster/refusal"
)

// boundedStatefulSets bounds what the controller of StatefulSets holds at once: it makes a pod of the template for each replica, in
// memory, before it creates the first. It is in the storage, because the scale subresource changes replicas, too.
type boundedStatefulSets struct{ *boundedStorage }

func isStatefulSets(r schema.GroupResource) bool {
	return r == appsv1.Resource("statefulsets")
}

// Create refuses a StatefulSet with too many replicas for its size.
func (b *boundedStatefulSets) Create(ctx context.Context, key string, obj, out runtime.Object, ttl uint64) error {
	if err := b.check(obj); err != nil {
		return err
	}
	return b.boundedStorage.Create(ctx, key, obj, out, ttl)
}

// GuaranteedUpdate refuses to make one such of another.
func (b *boundedStatefulSets) GuaranteedUpdate(
	ctx context.Context, key string, destination runtime.Object, ignoreNotFound bool,
	preconditions *storage.Preconditions, update storage.UpdateFunc, cached runtime.Object,
) error {
	return b.boundedStorage.GuaranteedUpdate(ctx, key, destination, ignoreNotFound, preconditions,
		measured(b.held, update, func(updated runtime.Object, _ storage.ResponseMeta, grown int64) error {
			if grown <= 0 {
				return nil
			}
			return b.check(updated)
		}), cached)
}

func (b *boundedStatefulSets) check(obj runtime.Object) error {
	held, err := b.held(obj)
	if err != nil {
		return err
	}
	return refusal.Status(bounds.StatefulSetBytes.Check(held), b.resource, nameOf(obj))
}

// held is how many bytes the pods have that the controller makes at once.
func (b *boundedStatefulSets) held(obj runtime.Object) (int64, error) {
	set, ok := obj.(*apps.StatefulSet)
	if !ok {
		return 0, nil
	}
	size, err := b.size(&apps.StatefulSet{Spec: set.Spec})
	return size * int64(set.Spec.Replicas), err
}
