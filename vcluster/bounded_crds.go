// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package vcluster

import (
	"context"
	"fmt"
	"sync"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/storage"

	"github.com/berth-dev/berth/bounds"
)

// definitionsPrefix is where CustomResourceDefinitions are stored.
const definitionsPrefix = "/registry/apiextensions.k8s.io/customresourcedefinitions/"

var definitionsResource = schema.GroupResource{Group: apiextensions.GroupName, Resource: "customresourcedefinitions"}

// boundedDefinitions bounds the number and size of CustomResourceDefinitions, of each of which an API server holds several
// forms in memory, and documents. What makes none larger is always possible.
type boundedDefinitions struct {
	*boundedStorage
	account *bounds.Account
	reader  *storeReader

	mu      sync.Mutex
	counted bool // the account's usage was once that of the store
}

// Create takes a place for the definition, which it gives back if the definition isn't made.
func (b *boundedDefinitions) Create(ctx context.Context, key string, obj, out runtime.Object, ttl uint64) error {
	size, err := b.size(obj)
	if err != nil {
		return err
	}
	if err := b.count(ctx); err != nil {
		return err
	}
	if err := b.account.Take(bounds.CustomResourceDefinitions, 1); err != nil {
		return asStatus(err, definitionsResource, nameOf(obj))
	}
	if err := b.account.Take(bounds.SchemaBytes, int64(size)); err != nil {
		b.account.Give(bounds.CustomResourceDefinitions, 1)
		return asStatus(err, definitionsResource, nameOf(obj))
	}
	if err := b.boundedStorage.Create(ctx, key, obj, out, ttl); err != nil {
		b.account.Give(bounds.CustomResourceDefinitions, 1)
		b.account.Give(bounds.SchemaBytes, int64(size))
		return err
	}
	return nil
}

// GuaranteedUpdate refuses what makes a definition larger than there is place for.
func (b *boundedDefinitions) GuaranteedUpdate(
	ctx context.Context, key string, destination runtime.Object, ignoreNotFound bool,
	preconditions *storage.Preconditions, update storage.UpdateFunc, cached runtime.Object,
) error {
	if err := b.count(ctx); err != nil {
		return err
	}
	var grown int64
	update = b.measured(update, func(updated runtime.Object, _ storage.ResponseMeta, by int64) error {
		grown = by
		limit, used := b.account.Limit(bounds.SchemaBytes), b.account.Used(bounds.SchemaBytes)
		// The controllers' own updates, of conditions and accepted names, are small.
		if grown > deletionBytes && used+grown > limit {
			b.account.Refuse(bounds.SchemaBytes)
			err := &bounds.ExceededError{Quantity: bounds.SchemaBytes, Asked: grown, Used: used, Limit: limit}
			return asStatus(err, definitionsResource, nameOf(updated))
		}
		return nil
	})
	err := b.boundedStorage.GuaranteedUpdate(ctx, key, destination, ignoreNotFound, preconditions, update, cached)
	if err == nil {
		b.account.Add(bounds.SchemaBytes, grown)
	}
	return err
}

// Delete is always possible.
func (b *boundedDefinitions) Delete(
	ctx context.Context, key string, out runtime.Object, preconditions *storage.Preconditions,
	validate storage.ValidateObjectFunc, cached runtime.Object, opts storage.DeleteOptions,
) error {
	if err := b.count(ctx); err != nil {
		return err
	}
	if err := b.boundedStorage.Delete(ctx, key, out, preconditions, validate, cached, opts); err != nil {
		return err
	}
	size, err := b.size(out)
	b.account.Give(bounds.CustomResourceDefinitions, 1)
	b.account.Give(bounds.SchemaBytes, int64(size))
	return err
}

// count reads, once, what is in the store.
func (b *boundedDefinitions) count(ctx context.Context) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.counted {
		return nil
	}
	var n, size int64
	ctx = bounds.WithReservation(ctx, nil) // it is not the request's
	if err := b.reader.scan(ctx, definitionsPrefix, clientv3.WithLimit(scanPage), func(_ string, value []byte) bool {
		n++
		size += int64(len(value))
		return true
	}); err != nil {
		return fmt.Errorf("count definitions: %w", err)
	}
	b.account.Set(bounds.CustomResourceDefinitions, n)
	b.account.Set(bounds.SchemaBytes, size)
	b.counted = true
	return nil
}

func nameOf(object runtime.Object) string {
	accessor, err := meta.Accessor(object)
	if err != nil {
		return ""
	}
	return accessor.GetName()
}
