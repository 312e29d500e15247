// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package hostcache

import (
	"fmt"
	"iter"
	"maps"
	"sync"

	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/translate"
)

// indexSpace is the index of cluster-scoped objects by space. Other objects are found by the space's host namespace.
const indexSpace = "berth.dev/space"

// Cache contains the latest version of the objects of one resource. It is safe for concurrent use.
type Cache struct {
	SpaceOf func(client.Object) string

	mu      sync.RWMutex // so that an object that is being repacked does not seem to be missing
	objects cache.Indexer
}

func newCache(spaceOf func(client.Object) string, more cache.Indexers) *Cache {
	c := &Cache{SpaceOf: spaceOf}
	indexers := cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc, indexSpace: c.spaceIfClusterWide}
	maps.Copy(indexers, more)
	c.objects = cache.NewIndexer(cache.MetaNamespaceKeyFunc, indexers)
	return c
}

func (c *Cache) spaceIfClusterWide(obj any) ([]string, error) {
	o, ok := obj.(client.Object)
	if !ok {
		return nil, fmt.Errorf("index %T by space: not an object", obj)
	}
	if o.GetNamespace() != "" || c.SpaceOf(o) == "" {
		return nil, nil
	}
	return []string{c.SpaceOf(o)}, nil
}

// swap stores an object, and returns the one that it replaces; nil if there was none. An object of the same version is
// not replaced, because it may have been packed.
func (c *Cache) swap(is client.Object) (was client.Object, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	item, exists, err := c.objects.Get(is)
	if err != nil {
		return nil, err
	}
	if exists {
		was, _ = item.(client.Object)
	}
	if Same(was, is) {
		return was, nil
	}
	return was, c.objects.Update(is)
}

// replace stores an object, whatever is stored now.
func (c *Cache) replace(is client.Object) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.objects.Update(is)
}

// Same reports whether two values are the same version of an object.
func Same(was, is client.Object) bool {
	return was != nil && is.GetResourceVersion() != "" && was.GetUID() == is.GetUID() && was.GetResourceVersion() == is.GetResourceVersion()
}

func (c *Cache) remove(gone client.Object) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.objects.Delete(gone)
}

// Of iterates over the objects that concern a space.
func (c *Cache) Of(space string) iter.Seq[client.Object] {
	return func(yield func(client.Object) bool) {
		for index, value := range map[string]string{indexSpace: space, cache.NamespaceIndex: translate.HostNamespacePrefix + space} {
			for _, item := range c.By(index, value) {
				if o, ok := item.(client.Object); ok && c.SpaceOf(o) == space && !yield(o) {
					return
				}
			}
		}
	}
}

// By returns the objects with this value of an index.
func (c *Cache) By(index, value string) []any {
	c.mu.RLock()
	defer c.mu.RUnlock()
	found, err := c.objects.ByIndex(index, value)
	if err != nil {
		return nil // there is no such index, which callers avoid
	}
	return found
}

// Get returns the object with this key; nil if there is none.
func (c *Cache) Get(key string) any {
	c.mu.RLock()
	defer c.mu.RUnlock()
	item, _, err := c.objects.GetByKey(key)
	if err != nil {
		return nil // can't happen with a store in memory
	}
	return item
}

// Repack copies the objects of a space, and their index entries. So they are allocated together, and no longer each
// among objects that are garbage by now. It is for spaces that sleep.
func (c *Cache) Repack(space string) error {
	var there, anew []client.Object
	for o := range c.Of(space) {
		copied, ok := o.DeepCopyObject().(client.Object)
		if !ok {
			continue
		}
		Pack(copied)
		there, anew = append(there, o), append(anew, copied)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	// First, all are removed, so that nothing of the old index entries remains.
	for i, o := range there {
		if is, ok, err := c.objects.Get(o); err != nil || !ok || is != any(o) {
			anew[i] = nil // it has changed in the meantime
		} else if err := c.objects.Delete(o); err != nil {
			return err
		}
	}
	for _, o := range anew {
		if o == nil {
			continue
		}
		if err := c.objects.Add(o); err != nil {
			return err
		}
	}
	return nil
}

// Keys returns the keys of all objects.
func (c *Cache) Keys() []string {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.objects.ListKeys()
}

// All returns all objects.
func (c *Cache) All() []any {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.objects.List()
}
