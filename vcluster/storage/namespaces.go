// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"context"
	"fmt"
	"strings"
	"sync"

	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/storage"

	"github.com/berth-dev/berth/access"
	"github.com/berth-dev/berth/bounds"
	"github.com/berth-dev/berth/vcluster/informer"
	"github.com/berth-dev/berth/vcluster/inside"
	"github.com/berth-dev/berth/vcluster/registry"
)

// quotaNamespaces holds clients to the tenant's quota of namespaces (O8). It is in the storage, because only there is known which
// namespaces there are, however many are created at once. What Berth creates itself counts, but is not refused.
type quotaNamespaces struct {
	*boundedStorage
	tenant *access.Source
	reader *registry.Reader
	places *namespacePlaces
}

// namespacePlaces are the names of namespaces that are about to be created. A store has one, however many registries open its
// namespaces.
type namespacePlaces struct {
	mu    sync.Mutex
	names map[string]int
}

// Create refuses a namespace beyond the quota.
func (q *quotaNamespaces) Create(ctx context.Context, key string, obj, out runtime.Object, ttl uint64) error {
	give, err := q.take(ctx, nameOf(obj))
	if err != nil {
		return err
	}
	defer give()
	return q.boundedStorage.Create(ctx, key, obj, out, ttl)
}

// GuaranteedUpdate refuses to make a namespace beyond the quota, as server-side apply does by updates.
func (q *quotaNamespaces) GuaranteedUpdate(
	ctx context.Context, key string, destination runtime.Object, ignoreNotFound bool,
	preconditions *storage.Preconditions, update storage.UpdateFunc, cached runtime.Object,
) error {
	give := func() {}
	defer func() { give() }()
	return q.boundedStorage.GuaranteedUpdate(ctx, key, destination, ignoreNotFound, preconditions,
		func(old runtime.Object, response storage.ResponseMeta) (runtime.Object, *uint64, error) {
			updated, ttl, err := update(old, response)
			if err != nil || response.ResourceVersion != 0 {
				return updated, ttl, err
			}
			give()
			if give, err = q.take(ctx, nameOf(updated)); err != nil {
				give = func() {}
				return nil, nil, err
			}
			return updated, ttl, nil
		}, cached)
}

// take takes a place for a namespace until it was created, or wasn't.
func (q *quotaNamespaces) take(ctx context.Context, name string) (give func(), err error) {
	rules := q.tenant.Rules()
	if inside.Is(ctx) || !access.IsTenants(name) || rules.State().Namespaces.Quota == nil {
		return func() {}, nil
	}
	q.places.mu.Lock()
	defer q.places.mu.Unlock()
	used, err := q.used(ctx, name, int64(*rules.State().Namespaces.Quota))
	if err != nil {
		return nil, err
	}
	if err := rules.CheckQuota(name, used); err != nil {
		return nil, apierrors.NewForbidden(q.resource, name, err)
	}
	if q.places.names == nil {
		q.places.names = map[string]int{}
	}
	q.places.names[name]++
	return sync.OnceFunc(func() {
		q.places.mu.Lock()
		defer q.places.mu.Unlock()
		if q.places.names[name]--; q.places.names[name] == 0 {
			delete(q.places.names, name)
		}
	}), nil
}

// used counts the tenant's namespaces that there are or may be in a moment, without that name. As long as there are clearly fewer
// than the quota, it does not read them.
func (q *quotaNamespaces) used(ctx context.Context, name string, quota int64) (int64, error) {
	ctx = bounds.WithReservation(ctx, nil) // it is not the request's
	prefix := informer.Prefix(corev1.Resource("namespaces"))
	counted, err := q.reader.Client.Get(ctx, prefix, clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil {
		return 0, fmt.Errorf("count namespaces: %w", err)
	}
	if most := counted.Count + int64(len(q.places.names)); most < quota {
		return most, nil
	}
	names := map[string]bool{}
	for name := range q.places.names {
		names[name] = true
	}
	err = q.reader.Scan(ctx, prefix, registry.Page, func(key string, _ []byte) bool {
		if stored := strings.TrimPrefix(key, prefix); access.IsTenants(stored) {
			names[stored] = true
		}
		return true
	})
	if err != nil {
		return 0, fmt.Errorf("count namespaces: %w", err)
	}
	delete(names, name)
	return int64(len(names)), nil
}
