// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/client-go/tools/cache"

	"github.com/berth-dev/berth/quota"
	"github.com/berth-dev/berth/vcluster/usage"
)

// Quota holds a space to the quota of its tenant.
type Quota struct {
	Gate  *quota.Gate
	Usage *usage.Calculator
}

// Counts reports whether objects of a resource use something of the tenant's quota in the space. What the syncer makes of other objects
// is counted on the host only.
func Counts(resource schema.GroupResource) bool {
	return resource == corev1.Resource("pods") || resource == corev1.Resource("persistentvolumeclaims")
}

// Key returns the key of an object for [quota.Gate].
func Key(resource schema.GroupResource, object any) string {
	m, err := meta.Accessor(object)
	if err != nil {
		return ""
	}
	return resource.Resource + "/" + cache.MetaObjectToName(m).String()
}

// countedObjects are objects that use something of the tenant's quota. Whether there is enough is decided here, because only here it is
// known whether an object is written.
type countedObjects struct {
	*boundedStorage
	quota *Quota
}

// Create refuses an object beyond the quota.
func (c *countedObjects) Create(ctx context.Context, key string, obj, out runtime.Object, ttl uint64) error {
	admitted, err := c.admit(ctx, nil, obj)
	if err != nil {
		return err
	}
	err = c.boundedStorage.Create(ctx, key, obj, out, ttl)
	admitted.Done(err == nil)
	return err
}

// GuaranteedUpdate refuses an update beyond the quota.
func (c *countedObjects) GuaranteedUpdate(
	ctx context.Context, key string, destination runtime.Object, ignoreNotFound bool,
	preconditions *storage.Preconditions, update storage.UpdateFunc, cached runtime.Object,
) error {
	var admitted *quota.Admitted
	err := c.boundedStorage.GuaranteedUpdate(ctx, key, destination, ignoreNotFound, preconditions,
		func(old runtime.Object, response storage.ResponseMeta) (runtime.Object, *uint64, error) {
			var before runtime.Object
			if response.ResourceVersion != 0 { // otherwise it is created
				before = usage.Keep(old) // update may change it
			}
			updated, ttl, err := update(old, response)
			if err != nil {
				return updated, ttl, err
			}
			admitted.Done(false) // of the last try
			if admitted, err = c.admit(ctx, before, updated); err != nil {
				return nil, nil, err
			}
			return updated, ttl, nil
		}, cached)
	admitted.Done(err == nil)
	return err
}

// admit asks whether the quota allows an object.
func (c *countedObjects) admit(ctx context.Context, before, after runtime.Object) (*quota.Admitted, error) {
	if before != nil && !usage.Changes(before, after) {
		return nil, nil
	}
	more, err := c.more(before, after)
	if err != nil {
		return nil, err
	}
	admitted, err := c.quota.Gate.Admit(ctx, Key(c.resource, after), more)
	if exceeded := (*quota.Exceeded)(nil); errors.As(err, &exceeded) {
		return nil, apierrors.NewForbidden(c.resource, nameOf(after), exceeded)
	}
	if err != nil {
		return nil, apierrors.NewServiceUnavailable(fmt.Sprintf("could not ask whether the quota of the tenant allows this: %v; try again", err))
	}
	return admitted, nil
}

func (c *countedObjects) more(before, after runtime.Object) (quota.Amounts, error) {
	uses, err := c.quota.Usage.Of(after)
	if err != nil || before == nil {
		return uses, err
	}
	used, err := c.quota.Usage.Of(before)
	if err != nil {
		return nil, err
	}
	return quota.Over(uses, used), nil
}
