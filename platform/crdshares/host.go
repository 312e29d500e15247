// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package crdshares

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/definitions"
	"github.com/berth-dev/berth/vcluster/schemas"
)

// What is listed.
const (
	listOfShares      = "shares"
	listOfDefinitions = "definitions"
)

// watchShares watches the shares until ctx ends.
func (s *Shares) watchShares(ctx context.Context, host client.WithWatch) {
	watchAll(ctx, host, &v1alpha1.CRDShare{}, func() client.ObjectList { return &v1alpha1.CRDShareList{} }, &events[*v1alpha1.CRDShare, *v1alpha1.CRDShare]{
		shares: s, list: listOfShares, of: func() map[string]*v1alpha1.CRDShare { return s.shares },
		value: func(share *v1alpha1.CRDShare) *v1alpha1.CRDShare { return share },
	})
}

// watchDefinitions watches the metadata of the host's definitions until ctx ends. Definitions may be large, and only those that are
// shared are needed.
func (s *Shares) watchDefinitions(ctx context.Context, host client.WithWatch) {
	kind := apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition")
	object := &metav1.PartialObjectMetadata{}
	object.SetGroupVersionKind(kind)
	watchAll(ctx, host, object, func() client.ObjectList {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
		return list
	}, &events[*metav1.PartialObjectMetadata, string]{
		shares: s, list: listOfDefinitions, of: func() map[string]string { return s.versions },
		value: func(definition *metav1.PartialObjectMetadata) string { return definition.ResourceVersion },
	})
}

func watchAll(ctx context.Context, host client.WithWatch, object client.Object, newList func() client.ObjectList, to cache.ReflectorStore) {
	cache.NewReflectorWithOptions(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			list := newList()
			return list, host.List(ctx, list, &client.ListOptions{Raw: &o})
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return host.Watch(ctx, newList(), &client.ListOptions{Raw: &o})
		},
	}, object, to, cache.ReflectorOptions{Name: "shared definitions"}).RunWithContext(ctx)
}

// events keeps a map of what is watched.
type events[T client.Object, V any] struct {
	shares *Shares
	list   string
	of     func() map[string]V // the caller holds the mutex of the shares
	value  func(T) V
}

func (e *events[T, V]) change(change func(map[string]V)) error {
	e.shares.mu.Lock()
	defer e.shares.mu.Unlock()
	change(e.of())
	e.shares.note()
	return nil
}

// Add implements [cache.ReflectorStore].
func (e *events[T, V]) Add(item any) error { return e.Update(item) }

// Update implements [cache.ReflectorStore].
func (e *events[T, V]) Update(item any) error {
	object, ok := item.(T)
	if !ok {
		return fmt.Errorf("store %s: unexpected type %T", e.list, item)
	}
	return e.change(func(all map[string]V) { all[object.GetName()] = e.value(object) })
}

// Delete implements [cache.ReflectorStore].
func (e *events[T, V]) Delete(item any) error {
	object, ok := item.(T)
	if !ok {
		return fmt.Errorf("remove from %s: unexpected type %T", e.list, item)
	}
	return e.change(func(all map[string]V) { delete(all, object.GetName()) })
}

// Replace implements [cache.ReflectorStore].
func (e *events[T, V]) Replace(items []any, _ string) error {
	return e.change(func(all map[string]V) {
		clear(all)
		for _, item := range items {
			if object, ok := item.(T); ok {
				all[object.GetName()] = e.value(object)
			}
		}
		e.shares.listed[e.list] = true
	})
}

// Resync implements [cache.ReflectorStore]. It does nothing.
func (*events[T, V]) Resync() error { return nil }

// serve reads a definition of the host. version is the one that was watched; "" if the host has none.
func serve(ctx context.Context, host client.Client, share *v1alpha1.CRDShare, version string) *served {
	result := &served{version: version, share: string(share.UID)}
	notFound := func() *served {
		result.reason = v1alpha1.ReasonDefinitionNotFound
		result.message = fmt.Sprintf("metadata.name: the host has no CustomResourceDefinition %s; create it, or delete this share", share.Name)
		return result
	}
	if version == "" {
		return notFound()
	}
	definition := &apiextensionsv1.CustomResourceDefinition{}
	if err := host.Get(ctx, client.ObjectKey{Name: share.Name}, definition); apierrors.IsNotFound(err) {
		return notFound()
	} else if err != nil {
		result.reason, result.message = v1alpha1.ReasonDefinitionUnavailable, fmt.Sprintf("read the CustomResourceDefinition: %v; Berth retries", err)
		return result
	}
	result.version = definition.ResourceVersion // it may be newer than what was watched
	var crd *apiextensionsv1.CustomResourceDefinition
	stored, err := record(ctx, host, share, definitions.StorageVersion(definition))
	if err == nil {
		result.stored = stored
		crd, err = definitions.Serve(definition, share.Name, stored...)
	}
	if err == nil {
		err = checkSchemas(crd)
	}
	switch {
	case errors.Is(err, definitions.ErrUnsupported):
		result.reason, result.message = v1alpha1.ReasonDefinitionUnsupported, err.Error()
	case err != nil:
		result.reason, result.message = v1alpha1.ReasonDefinitionUnavailable, err.Error()
	default:
		result.forced = &definitions.Shared{CRD: crd, Forced: true, InRange: true}
		result.optional = &definitions.Shared{CRD: crd, InRange: true}
	}
	return result
}

// checkSchemas returns an error if a definition is beyond what spaces may define: what it costs, a tenant can spend.
func checkSchemas(crd *apiextensionsv1.CustomResourceDefinition) error {
	checked := &apiextensions.CustomResourceDefinition{}
	if err := apiextensionsv1.Convert_v1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition(crd.DeepCopy(), checked, nil); err != nil {
		return fmt.Errorf("convert the CustomResourceDefinition: %w", err)
	}
	if errs := schemas.Check(checked); len(errs) > 0 {
		return fmt.Errorf("%s: %w: %w", crd.Name, definitions.ErrUnsupported, errs.ToAggregate())
	}
	return nil
}
