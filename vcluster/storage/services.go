// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"context"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/kubernetes/pkg/apis/core"

	"github.com/berth-dev/berth/bounds"
	"github.com/berth-dev/berth/vcluster/registry"
)

// boundedServices bounds the ports of all Services together, each of which is a rule on every node of the host. What adds
// none is always possible. It counts once what is in the store, and from then on by what each write changes.
type boundedServices struct {
	*boundedStorage
	reader *registry.Reader
	count  *once
}

// once is whether the account has what was in the store. A store has one, however many registries open its services.
type once struct {
	mu   sync.Mutex
	done bool
}

// Get has the ports counted, too: admission reads a service before it asks the host for addresses, and looks at the account.
func (b *boundedServices) Get(ctx context.Context, key string, opts storage.GetOptions, out runtime.Object) error {
	if err := b.counted(ctx); err != nil {
		return err
	}
	return b.boundedStorage.Get(ctx, key, opts, out)
}

// Create takes places for the service's ports, which it gives back if the service isn't made.
func (b *boundedServices) Create(ctx context.Context, key string, obj, out runtime.Object, ttl uint64) error {
	if err := b.counted(ctx); err != nil {
		return err
	}
	ports := portsOf(obj)
	if err := b.take(ctx, ports, obj); err != nil {
		return err
	}
	err := b.boundedStorage.Create(ctx, key, obj, out, ttl)
	if err != nil {
		b.account.Give(bounds.ServicePortsTotal, ports)
	}
	return err
}

// GuaranteedUpdate refuses what adds more ports than there is place for.
func (b *boundedServices) GuaranteedUpdate(
	ctx context.Context, key string, destination runtime.Object, ignoreNotFound bool,
	preconditions *storage.Preconditions, update storage.UpdateFunc, cached runtime.Object,
) error {
	if err := b.counted(ctx); err != nil {
		return err
	}
	var taken, freed int64
	err := b.boundedStorage.GuaranteedUpdate(ctx, key, destination, ignoreNotFound, preconditions,
		func(old runtime.Object, response storage.ResponseMeta) (runtime.Object, *uint64, error) {
			b.account.Give(bounds.ServicePortsTotal, taken) // of an attempt before, which met another version
			taken, freed = 0, 0
			before := portsOf(old) // update may change it
			updated, ttl, err := update(old, response)
			if err != nil {
				return nil, nil, err
			}
			grown := portsOf(updated) - before
			if grown <= 0 {
				freed = -grown
				return updated, ttl, nil
			}
			if err := b.take(ctx, grown, updated); err != nil {
				return nil, nil, err
			}
			taken = grown
			return updated, ttl, nil
		}, cached)
	if err != nil {
		b.account.Give(bounds.ServicePortsTotal, taken)
		return err
	}
	b.account.Give(bounds.ServicePortsTotal, freed)
	return nil
}

// Delete is always possible.
func (b *boundedServices) Delete(
	ctx context.Context, key string, out runtime.Object, preconditions *storage.Preconditions,
	validate storage.ValidateObjectFunc, cached runtime.Object, opts storage.DeleteOptions,
) error {
	if err := b.counted(ctx); err != nil {
		return err
	}
	err := b.boundedStorage.Delete(ctx, key, out, preconditions, validate, cached, opts)
	if err == nil {
		b.account.Give(bounds.ServicePortsTotal, portsOf(out))
	}
	return err
}

func (b *boundedServices) take(ctx context.Context, ports int64, service runtime.Object) error {
	err := b.account.TakePromised(bounds.WorkOf(ctx), bounds.ServicePortsTotal, ports)
	if err == nil {
		return nil
	}
	return apierrors.NewForbidden(b.resource, nameOf(service), field.Forbidden(field.NewPath("spec", "ports"), err.Error()))
}

// counted reads, once, what is in the store.
func (b *boundedServices) counted(ctx context.Context) error {
	b.count.mu.Lock()
	defer b.count.mu.Unlock()
	if b.count.done {
		return nil
	}
	ctx = bounds.WithReservation(ctx, nil) // it is not the request's
	const page = 10                        // no request's account holds them
	var ports int64
	err := registry.Each(ctx, b.reader, corev1.SchemeGroupVersion, "services", page, func(service *corev1.Service) {
		ports += int64(max(1, len(service.Spec.Ports)))
	})
	if err != nil {
		return fmt.Errorf("count ports of services: %w", err)
	}
	b.account.Add(bounds.ServicePortsTotal, ports) // to what is promised
	b.count.done = true
	return nil
}

// portsOf counts the ports of a service, as handlers have it.
func portsOf(object runtime.Object) int64 {
	service, ok := object.(*core.Service)
	if !ok || service.Name == "" { // it is about to be created by an update
		return 0
	}
	return int64(max(1, len(service.Spec.Ports)))
}
