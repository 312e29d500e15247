// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package hostwatch watches objects of the host by name, for the packages that give spaces what administrators declare there. It keeps
// nothing itself.
package hostwatch

import (
	"context"
	"fmt"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Objects watches objects until ctx ends. What names the watch in logs. object and newList say of which type they are. While the host
// can't be read, what was stored stays.
func Objects(ctx context.Context, host client.WithWatch, what string, object client.Object, newList func() client.ObjectList, to cache.ReflectorStore) {
	cache.NewReflectorWithOptions(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			list := newList()
			return list, host.List(ctx, list, &client.ListOptions{Raw: &o})
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return host.Watch(ctx, newList(), &client.ListOptions{Raw: &o})
		},
	}, object, to, cache.ReflectorOptions{Name: what}).RunWithContext(ctx)
}

// Definitions watches the metadata of the host's CustomResourceDefinitions until ctx ends, as Objects does. Definitions may be large, and
// only few of them are needed.
func Definitions(ctx context.Context, host client.WithWatch, what string, to cache.ReflectorStore) {
	kind := apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition")
	object := &metav1.PartialObjectMetadata{}
	object.SetGroupVersionKind(kind)
	Objects(ctx, host, what, object, func() client.ObjectList {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
		return list
	}, to)
}

// Store stores what is watched in a map of its owner, by name.
type Store[T client.Object, V any] struct {
	// Change calls change with the map, which the owner locks. listed says that the map is then complete.
	Change func(listed bool, change func(map[string]V))
	// Value returns what to store of an object.
	Value func(T) V
}

// Add implements [cache.ReflectorStore].
func (s *Store[T, V]) Add(item any) error { return s.Update(item) }

// Update implements [cache.ReflectorStore].
func (s *Store[T, V]) Update(item any) error {
	object, ok := item.(T)
	if !ok {
		return fmt.Errorf("store an object of the host: unexpected type %T", item)
	}
	s.Change(false, func(all map[string]V) { all[object.GetName()] = s.Value(object) })
	return nil
}

// Delete implements [cache.ReflectorStore].
func (s *Store[T, V]) Delete(item any) error {
	object, ok := item.(T)
	if !ok {
		return fmt.Errorf("remove an object of the host: unexpected type %T", item)
	}
	s.Change(false, func(all map[string]V) { delete(all, object.GetName()) })
	return nil
}

// Replace implements [cache.ReflectorStore].
func (s *Store[T, V]) Replace(items []any, _ string) error {
	s.Change(true, func(all map[string]V) {
		clear(all)
		for _, item := range items {
			if object, ok := item.(T); ok {
				all[object.GetName()] = s.Value(object)
			}
		}
	})
	return nil
}

// Resync implements [cache.ReflectorStore]. It does nothing.
func (*Store[T, V]) Resync() error { return nil }
