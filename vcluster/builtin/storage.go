// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package builtin

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/storage/storagebackend/factory"
	"k8s.io/client-go/tools/cache"
)

// Resource is what is to be known of a resource to store it, as upstream's
// registry says it.
type Resource struct {
	Config       *storagebackend.ConfigForResource
	Prefix       string
	Key          func(runtime.Object) (string, error)
	New, NewList func() runtime.Object
	Attributes   storage.AttrFunc
	Triggers     storage.IndexerFuncs
	Indexers     *cache.Indexers
}

// dispatcher is a resource's storage in whichever space a call is for.
type dispatcher struct{ resource Resource }

var _ storage.Interface = &dispatcher{}

// dispatch makes next's resources have a dispatcher for storage.
type dispatch struct{ next generic.RESTOptionsGetter }

func (g dispatch) GetRESTOptions(resource schema.GroupResource, example runtime.Object) (generic.RESTOptions, error) {
	options, err := g.next.GetRESTOptions(resource, example)
	if err != nil {
		return options, err
	}
	options.Decorator = Decorator(newDispatcher)
	return options, nil
}

// Decorator makes a [generic.StorageDecorator] of open, which opens the storage
// of a resource and returns what closes it.
func Decorator(open func(Resource) (storage.Interface, factory.DestroyFunc, error)) generic.StorageDecorator {
	return func(
		c *storagebackend.ConfigForResource, prefix string, key func(runtime.Object) (string, error), newFunc, newListFunc func() runtime.Object,
		attributes storage.AttrFunc, triggers storage.IndexerFuncs, indexers *cache.Indexers,
	) (storage.Interface, factory.DestroyFunc, error) {
		return open(Resource{
			Config: c, Prefix: prefix, Key: key, New: newFunc, NewList: newListFunc,
			Attributes: attributes, Triggers: triggers, Indexers: indexers,
		})
	}
}

func newDispatcher(r Resource) (storage.Interface, factory.DestroyFunc, error) {
	return &dispatcher{r}, func() {}, nil
}

func (d *dispatcher) of(ctx context.Context) (storage.Interface, error) {
	space, err := spaceOf(ctx)
	if err != nil {
		return nil, storage.NewInternalError(err)
	}
	return space.storage(d)
}

func (d *dispatcher) Versioner() storage.Versioner { return storage.APIObjectVersioner{} }

func (d *dispatcher) Create(ctx context.Context, key string, obj, out runtime.Object, ttl uint64) error {
	s, err := d.of(ctx)
	if err != nil {
		return err
	}
	return s.Create(ctx, key, obj, out, ttl)
}

func (d *dispatcher) Delete(
	ctx context.Context, key string, out runtime.Object, preconditions *storage.Preconditions,
	validate storage.ValidateObjectFunc, cached runtime.Object, opts storage.DeleteOptions,
) error {
	s, err := d.of(ctx)
	if err != nil {
		return err
	}
	return s.Delete(ctx, key, out, preconditions, validate, cached, opts)
}

func (d *dispatcher) Watch(ctx context.Context, key string, opts storage.ListOptions) (watch.Interface, error) {
	s, err := d.of(ctx)
	if err != nil {
		return nil, err
	}
	return s.Watch(ctx, key, opts)
}

func (d *dispatcher) Get(ctx context.Context, key string, opts storage.GetOptions, obj runtime.Object) error {
	s, err := d.of(ctx)
	if err != nil {
		return err
	}
	return s.Get(ctx, key, opts, obj)
}

func (d *dispatcher) GetList(ctx context.Context, key string, opts storage.ListOptions, list runtime.Object) error {
	s, err := d.of(ctx)
	if err != nil {
		return err
	}
	return s.GetList(ctx, key, opts, list)
}

func (d *dispatcher) GuaranteedUpdate(
	ctx context.Context, key string, destination runtime.Object, ignoreNotFound bool,
	preconditions *storage.Preconditions, update storage.UpdateFunc, cached runtime.Object,
) error {
	s, err := d.of(ctx)
	if err != nil {
		return err
	}
	return s.GuaranteedUpdate(ctx, key, destination, ignoreNotFound, preconditions, update, cached)
}

func (d *dispatcher) Stats(ctx context.Context) (storage.Stats, error) {
	s, err := d.of(ctx)
	if err != nil {
		return storage.Stats{}, err
	}
	return s.Stats(ctx)
}

func (d *dispatcher) RequestWatchProgress(ctx context.Context) error {
	s, err := d.of(ctx)
	if err != nil {
		return err
	}
	return s.RequestWatchProgress(ctx)
}

func (d *dispatcher) GetCurrentResourceVersion(ctx context.Context) (uint64, error) {
	s, err := d.of(ctx)
	if err != nil {
		return 0, err
	}
	return s.GetCurrentResourceVersion(ctx)
}

// What follows is asked by a watch cache, which there is none of.

func (*dispatcher) ReadinessCheck() error { return nil }

func (*dispatcher) EnableResourceSizeEstimation(storage.KeysFunc) error { return nil }

func (*dispatcher) CompactRevision() int64 { return 0 }
