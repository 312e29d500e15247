// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"context"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/storage"

	"github.com/berth-dev/berth/bounds"
	"github.com/berth-dev/berth/vcluster/refusal"
)

// definitionsPrefix is where CustomResourceDefinitions are stored.
const definitionsPrefix = "/registry/apiextensions.k8s.io/customresourcedefinitions/"

var definitionsResource = schema.GroupResource{Group: apiextensions.GroupName, Resource: "customresourcedefinitions"}

// boundedDefinitions bounds the number and size of CustomResourceDefinitions, of each of which an API server holds several
// forms in memory, and documents; and the size of other objects whose expressions it compiles. What makes none larger is
// always possible.
type boundedDefinitions struct {
	*boundedStorage
	use *schemaUse
}

// take accounts n definitions of a size.
func (b *boundedDefinitions) take(n, size int64) error {
	if b.resource == definitionsResource {
		if err := b.account.Take(bounds.CustomResourceDefinitions, n); err != nil {
			return err
		}
	}
	if err := b.account.Take(bounds.SchemaBytes, size); err != nil {
		b.give(n, 0)
		return err
	}
	return nil
}

func (b *boundedDefinitions) give(n, size int64) {
	if b.resource == definitionsResource {
		b.account.Give(bounds.CustomResourceDefinitions, n)
	}
	b.account.Give(bounds.SchemaBytes, size)
}

func (b *boundedDefinitions) size(object runtime.Object) (int64, error) {
	stored, err := b.boundedStorage.size(object)
	return schemaBytes(stored, object), err
}

// Create takes a place for the definition, which it gives back if the definition isn't made.
func (b *boundedDefinitions) Create(ctx context.Context, key string, obj, out runtime.Object, ttl uint64) error {
	size, err := b.size(obj)
	if err != nil {
		return err
	}
	if err := b.use.count(ctx); err != nil {
		return err
	}
	if err := b.take(1, size); err != nil {
		return refusal.Status(err, b.resource, nameOf(obj))
	}
	if err := b.boundedStorage.Create(ctx, key, obj, out, ttl); err != nil {
		b.give(1, size)
		return err
	}
	return nil
}

// GuaranteedUpdate refuses what makes a definition larger than there is place for.
func (b *boundedDefinitions) GuaranteedUpdate(
	ctx context.Context, key string, destination runtime.Object, ignoreNotFound bool,
	preconditions *storage.Preconditions, update storage.UpdateFunc, cached runtime.Object,
) error {
	if err := b.use.count(ctx); err != nil {
		return err
	}
	var taken, added int64
	update = measured(b.size, update, func(updated runtime.Object, _ storage.ResponseMeta, grown int64) error {
		b.account.Give(bounds.SchemaBytes, taken) // of an attempt before, which met another version
		taken, added = 0, grown
		limit := b.account.Limit(bounds.SchemaBytes)
		if grown <= deletionBytes && b.account.Used(bounds.SchemaBytes)+grown <= limit+limit/reserve {
			return nil // the controllers' own updates, of conditions and accepted names, are small, and so are deletions
		}
		if grown <= 0 {
			return nil
		}
		if err := b.account.Take(bounds.SchemaBytes, grown); err != nil {
			return refusal.Status(err, b.resource, nameOf(updated))
		}
		taken, added = grown, 0
		return nil
	})
	err := b.boundedStorage.GuaranteedUpdate(ctx, key, destination, ignoreNotFound, preconditions, update, cached)
	if err != nil {
		b.account.Give(bounds.SchemaBytes, taken)
		return err
	}
	b.account.Add(bounds.SchemaBytes, added)
	return nil
}

// Delete is always possible.
func (b *boundedDefinitions) Delete(
	ctx context.Context, key string, out runtime.Object, preconditions *storage.Preconditions,
	validate storage.ValidateObjectFunc, cached runtime.Object, opts storage.DeleteOptions,
) error {
	if err := b.use.count(ctx); err != nil {
		return err
	}
	if err := b.boundedStorage.Delete(ctx, key, out, preconditions, validate, cached, opts); err != nil {
		return err
	}
	size, err := b.size(out)
	b.give(1, size)
	return err
}

func nameOf(object runtime.Object) string {
	accessor, err := meta.Accessor(object)
	if err != nil {
		return ""
	}
	return accessor.GetName()
}
