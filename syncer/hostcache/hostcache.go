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

// indexSpace finds what of cluster-wide kinds is a space's. Objects in namespaces
// are found by the space's host namespace.
const indexSpace = "berth.dev/space"

// Cache holds the objects of one resource as a host watch has shown them last. It is
// safe for concurrent use.
type Cache struct {
	SpaceOf func(client.Object) string

	mu      sync.RWMutex // so that what is packed anew is not seen as gone
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

// swap stores an object and returns the one whose place it takes, nil if there was
// none. One that is there already stays: it may have been packed.
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

// Same reports whether two are one object in one version.
func Same(was, is client.Object) bool {
	return was != nil && is.GetResourceVersion() != "" && was.GetUID() == is.GetUID() && was.GetResourceVersion() == is.GetResourceVersion()
}

func (c *Cache) remove(gone client.Object) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.objects.Delete(gone)
}

// Of are the objects that concern a space.
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

// By are the objects that an index finds.
func (c *Cache) By(index, value string) []any {
	c.mu.RLock()
	defer c.mu.RUnlock()
	found, err := c.objects.ByIndex(index, value)
	if err != nil {
		return nil // there is no such index: newMirror's caller knows them
	}
	return found
}

// Get is the object of a key, nil if there is none.
func (c *Cache) Get(key string) any {
	c.mu.RLock()
	defer c.mu.RUnlock()
	item, _, err := c.objects.GetByKey(key)
	if err != nil {
		return nil // not of a store in memory
	}
	return item
}

// Repack makes the objects of a space, and what finds them, anew: at one time
// and so in one place, not where each was in the midst of what was garbage soon.
// It is for spaces that sleep.
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
	// First all go, so that nothing that finds them is left of before.
	for i, o := range there {
		if is, ok, err := c.objects.Get(o); err != nil || !ok || is != any(o) {
			anew[i] = nil // it has changed meanwhile
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

// Keys are those of all objects.
func (c *Cache) Keys() []string {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.objects.ListKeys()
}

// All are all objects.
func (c *Cache) All() []any {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.objects.List()
}
