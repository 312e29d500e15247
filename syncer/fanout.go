// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package syncer

import (
	"fmt"
	"sync"
	"sync/atomic"

	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const indexSpace = "berth.dev/space"

// fanout hands each event of one shared host watch to the one space that it
// concerns, so that the cost of an event does not grow with the spaces.
type fanout struct {
	informer cache.SharedIndexInformer
	handler  cache.ResourceEventHandlerRegistration
	spaceOf  func(client.Object) string
	// changed, if set, is told of which space an object came, changed or went.
	changed func(space string)
	// shown is the latest resource version that all who had to have been told of.
	shown atomic.Uint64

	mu     sync.RWMutex
	spaces map[string]func(client.Object)
}

// everySpace is what spaceOf returns for objects that concern all spaces.
const everySpace = "*"

// newFanout must be called before the informer starts.
func newFanout(informer cache.SharedIndexInformer, spaceOf func(client.Object) string, changed func(space string)) (*fanout, error) {
	f := &fanout{informer: informer, spaceOf: spaceOf, changed: changed, spaces: map[string]func(client.Object){}}
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
	err := informer.AddIndexers(cache.Indexers{indexSpace: index})
	if err != nil {
		return nil, fmt.Errorf("index host objects by space: %w", err)
	}
	if f.handler, err = informer.AddEventHandler(f); err != nil {
		return nil, fmt.Errorf("watch host objects: %w", err)
	}
	return f, nil
}

// OnAdd implements [cache.ResourceEventHandler].
func (f *fanout) OnAdd(obj any, initial bool) { f.deliver(obj, !initial) }

// OnUpdate implements [cache.ResourceEventHandler]. A watch that was cut and
// begins anew shows all objects as updated.
func (f *fanout) OnUpdate(old, obj any) {
	was, ok := old.(client.Object)
	is, same := obj.(client.Object)
	same = ok && same && was.GetUID() == is.GetUID() && was.GetResourceVersion() == is.GetResourceVersion()
	if ok && f.spaceOf(was) != "" {
		if o, ok := obj.(client.Object); ok && f.spaceOf(o) != f.spaceOf(was) {
			f.deliver(old, !same) // it was taken from the space
		}
	}
	f.deliver(obj, !same)
}

// OnDelete implements [cache.ResourceEventHandler].
func (f *fanout) OnDelete(obj any) { f.deliver(obj, true) }

func (f *fanout) deliver(obj any, changed bool) {
	if tombstone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = tombstone.Obj
	}
	o, ok := obj.(client.Object)
	if !ok {
		return
	}
	space := f.spaceOf(o)
	f.receive(space, o)
	if changed && f.changed != nil && space != "" {
		f.changed(space)
	}
	f.shown.Store(max(f.shown.Load(), version(o.GetResourceVersion()))) // one call at a time
}

func (f *fanout) receive(space string, o client.Object) {
	f.mu.RLock()
	defer f.mu.RUnlock()
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
