// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package services

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/syncer/engine"
	"github.com/berth-dev/berth/syncer/resources"
)

// exposure describes one resource of exposures.
type exposure[T client.Object] struct {
	*Syncer
	synced *engine.Resource[T]
	// allowed reports whether the host should serve v, and why it may not.
	allowed func(v T) (wanted bool, errs field.ErrorList)
	// ready, if set, reports whether allowed can be called yet.
	ready func() bool
	// toHost returns v's host object.
	toHost func(v T) T
	// backends and hosts are the field paths of its services and host names.
	backends, hosts *field.Path
}

// IndexServices is the index of a space's objects by the services that they route to, as namespace/name.
const IndexServices = "berth.dev/services"

// addExposure declares a resource of exposures.
func addExposure[T client.Object](e *exposure[T]) error {
	k := e.synced
	err := k.Virtual.AddIndexers(cache.Indexers{
		engine.IndexSecrets: func(obj any) (names []string, _ error) {
			if v, ok := obj.(client.Object); ok {
				for _, ref := range resources.SecretsOf(v) {
					names = append(names, ref.String())
				}
			}
			return names, nil
		},
		IndexServices: func(obj any) (names []string, _ error) {
			if v, ok := obj.(client.Object); ok {
				for _, name := range resources.ServicesOf(v) {
					names = append(names, v.GetNamespace()+"/"+name)
				}
			}
			return names, nil
		},
	})
	if err != nil {
		return err
	}
	k.DeleteForbidden = true
	k.ToHost = func(_ context.Context, v T) (want T, wanted bool, err error) {
		if e.ready != nil && !e.ready() {
			return want, false, engine.ErrUnsettled
		}
		wanted, errs := e.allowed(v)
		if len(errs) == 0 && wanted {
			errs = e.wayOut(v)
		}
		if len(errs) > 0 {
			return want, false, engine.Forbid(errs)
		}
		if wanted {
			if err := claimNames(k, v, e.hosts); err != nil {
				return want, false, err
			}
		}
		return e.toHost(v), wanted, nil
	}
	syncStatus := k.SyncStatus
	k.SyncStatus = func(ctx context.Context, v, host T) (time.Duration, error) {
		out := false
		k.Compute(ctx, func() { out = len(e.wayOut(v)) > 0 })
		if out { // changed after allowed was called
			return 0, e.Withdraw(ctx, host) // its deletion triggers another sync, which reports the reason
		}
		return syncStatus(ctx, v, host)
	}
	engine.Add(k, func(v T, enqueue func(engine.Key)) { k.Refer(resources.Secrets, resources.SecretsOf(v), enqueue) })
	// Whether an exposure is allowed depends on its services.
	followServices(e.Syncer, k)
	return nil
}

// enqueueByIndex enqueues the objects that an index finds for an object of another resource that was added, changed, or
// deleted in the space.
func enqueueByIndex[T client.Object](k *engine.Resource[T], informer cache.SharedIndexInformer, index string) {
	k.FromSpace(informer, func(v client.Object, enqueue func(engine.Key)) {
		enqueueIndexed(k.Name, k.Virtual, index, client.ObjectKeyFromObject(v), enqueue)
	})
}

// enqueueIndexed enqueues the objects of a resource that an index of their informer finds by a name. Callers avoid that there is no such index.
func enqueueIndexed(resource string, objects cache.SharedIndexInformer, index string, by types.NamespacedName, enqueue func(engine.Key)) {
	keys, err := objects.GetIndexer().IndexKeys(index, by.String())
	if err != nil {
		return
	}
	for _, key := range keys {
		if name, err := cache.ParseObjectName(key); err == nil {
			enqueue(engine.Key{Resource: resource, NamespacedName: types.NamespacedName(name)})
		}
	}
}

// wayOut rejects backends that would make the host's controller route out of the space.
func (e *exposure[T]) wayOut(v T) (errs field.ErrorList) {
	for _, name := range resources.ServicesOf(v) {
		if e.LeadsOut(types.NamespacedName{Namespace: v.GetNamespace(), Name: name}) {
			errs = append(errs, field.Forbidden(e.backends.Key(name), LeadsOutReason))
		}
	}
	return errs
}
