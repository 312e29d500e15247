// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package syncer

import (
	"fmt"
	"sync"

	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const indexSpace = "berth.dev/space"

// fanout hands each event of one shared host watch to the one space that it
// concerns, so that the cost of an event does not grow with the spaces.
type fanout struct {
	informer cache.SharedIndexInformer
	spaceOf  func(client.Object) string

	mu     sync.RWMutex
	spaces map[string]func(client.Object)
}

// everySpace is what spaceOf returns for objects that concern all spaces.
const everySpace = "*"

// newFanout must be called before the informer starts.
func newFanout(informer cache.SharedIndexInformer, spaceOf func(client.Object) string) (*fanout, error) {
	f := &fanout{informer: informer, spaceOf: spaceOf, spaces: map[string]func(client.Object){}}
	index := func(obj any) ([]string, error) {
		o, ok := obj.(client.Object)
		if !ok {
			return nil, fmt.Errorf("index %T by space: not an object", obj)
		}
		if space := spaceOf(o); space != "" {
			return []string{space}, nil
		}
		return nil, nil
	}
	if err := informer.AddIndexers(cache.Indexers{indexSpace: index}); err != nil {
		return nil, fmt.Errorf("index host objects by space: %w", err)
	}
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    f.deliver,
		UpdateFunc: func(_, obj any) { f.deliver(obj) },
		DeleteFunc: f.deliver,
	})
	if err != nil {
		return nil, fmt.Errorf("watch host objects: %w", err)
	}
	return f, nil
}

func (f *fanout) deliver(obj any) {
	if tombstone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = tombstone.Obj
	}
	o, ok := obj.(client.Object)
	if !ok {
		return
	}
	f.mu.RLock()
	defer f.mu.RUnlock()
	space := f.spaceOf(o)
	if space == everySpace {
		for _, receive := range f.spaces {
			receive(o)
		}
		return
	}
	if receive := f.spaces[space]; receive != nil {
		receive(o)
	}
}

// subscribe calls receive with each object of the space there is, then with
// each that changes, until the returned function is called. receive must not
// block; it may see an object twice.
func (f *fanout) subscribe(space string, receive func(client.Object)) (cancel func(), err error) {
	f.mu.Lock()
	if f.spaces[space] != nil {
		f.mu.Unlock()
		return nil, fmt.Errorf("space %s is synced twice", space)
	}
	f.spaces[space] = receive
	f.mu.Unlock()
	cancel = func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.spaces, space)
	}
	for _, name := range []string{space, everySpace} {
		there, err := f.informer.GetIndexer().ByIndex(indexSpace, name)
		if err != nil {
			cancel()
			return nil, fmt.Errorf("list host objects of space %s: %w", space, err)
		}
		for _, obj := range there {
			receive(obj.(client.Object))
		}
	}
	return cancel, nil
}
