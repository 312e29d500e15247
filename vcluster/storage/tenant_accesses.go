// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"context"
	"fmt"
	"sync"

	clientv3 "go.etcd.io/etcd/client/v3"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/storage"

	"github.com/berth-dev/berth/access"
	"github.com/berth-dev/berth/bounds"
	"github.com/berth-dev/berth/vcluster/builtin"
)

// boundedAccesses bounds the number of TenantAccess objects, which are all read while the space sleeps, and of which each request of a
// visitor is compared with each.
type boundedAccesses struct {
	*boundedStorage
	client *clientv3.Client
	mu     *sync.Mutex // held while one is created
}

// Create refuses an object beyond the limit.
func (b *boundedAccesses) Create(ctx context.Context, key string, obj, out runtime.Object, ttl uint64) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.check(ctx, obj); err != nil {
		return err
	}
	return b.boundedStorage.Create(ctx, key, obj, out, ttl)
}

// GuaranteedUpdate refuses to make an object beyond the limit, as server-side apply does by updates.
func (b *boundedAccesses) GuaranteedUpdate(
	ctx context.Context, key string, destination runtime.Object, ignoreNotFound bool,
	preconditions *storage.Preconditions, update storage.UpdateFunc, cached runtime.Object,
) error {
	if ignoreNotFound {
		b.mu.Lock()
		defer b.mu.Unlock()
	}
	return b.boundedStorage.GuaranteedUpdate(ctx, key, destination, ignoreNotFound, preconditions,
		func(old runtime.Object, response storage.ResponseMeta) (runtime.Object, *uint64, error) {
			updated, ttl, err := update(old, response)
			if err == nil && response.ResourceVersion == 0 {
				err = b.check(ctx, updated)
			}
			return updated, ttl, err
		}, cached)
}

func (b *boundedAccesses) check(ctx context.Context, obj runtime.Object) error {
	ctx = bounds.WithReservation(ctx, nil) // it is not the request's
	counted, err := b.client.Get(ctx, builtin.TenantAccessPrefix, clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil {
		return fmt.Errorf("count TenantAccess objects: %w", err)
	}
	if counted.Count >= access.MaxTenantAccesses {
		return apierrors.NewForbidden(b.resource, nameOf(obj), fmt.Errorf(
			"the space has %d TenantAccess objects, and may have %d; delete those that have expired, or add subjects and rules to another one", counted.Count, access.MaxTenantAccesses))
	}
	return nil
}
