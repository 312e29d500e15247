// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package syncer

import (
	"fmt"
	"slices"
	"sync/atomic"

	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// feeds are the sources of a syncer's work, on both sides.
type feeds struct {
	sources []source
	// done reports of each source whether it has fed all there was when it was opened.
	done   []func() bool
	remove []func()
	opened atomic.Bool
}

// source begins to feed the queue, and says how to end that. fed, if not nil,
// reports whether all there was at first has been fed.
type source func(q *queue) (remove func(), fed func() bool, err error)

// open opens all sources, until one fails. What it opened is to be closed at
// any rate.
func (f *feeds) open(q *queue) error {
	for _, open := range f.sources {
		remove, fed, err := open(q)
		if err != nil {
			return err
		}
		f.remove = append(f.remove, remove)
		if fed != nil {
			f.done = append(f.done, fed)
		}
	}
	f.opened.Store(true)
	return nil
}

func (f *feeds) close() {
	for _, remove := range slices.Backward(f.remove) {
		remove()
	}
}

// fed reports whether the queue has been given all there was at first.
func (f *feeds) fed() bool {
	return f.opened.Load() && !slices.ContainsFunc(f.done, func(fed func() bool) bool { return !fed() })
}

// fromSpace feeds the queue from an informer of the space.
func (s *Syncer) fromSpace(informer cache.SharedIndexInformer, lead func(client.Object, func(Key))) {
	s.fromChanges(informer, func(_, is client.Object, enqueue func(Key)) { lead(is, enqueue) })
}

// fromChanges is fromSpace with what an object was before it changed, nil if it came or went. lead must return soon: the
// informer keeps for it all that changes meanwhile.
func (s *Syncer) fromChanges(informer cache.SharedIndexInformer, lead func(was, is client.Object, enqueue func(Key))) {
	added := s.extended[informer]
	if added == nil { // the rest does not wait for extensions
		s.synced = append(s.synced, informer.HasSyncedChecker())
	}
	s.feeds.sources = append(s.feeds.sources, func(q *queue) (func(), func() bool, error) {
		receive := func(was, obj any, enqueue func(Key)) {
			if tombstone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = tombstone.Obj
			}
			before, _ := was.(client.Object)
			if o, ok := obj.(client.Object); ok {
				lead(before, o, enqueue)
			}
		}
		handle, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc:    func(obj any) { receive(nil, obj, q.addFirst) },
			UpdateFunc: func(was, obj any) { receive(was, obj, q.add) },
			DeleteFunc: func(obj any) { receive(nil, obj, q.add) },
		})
		if err != nil {
			return nil, nil, fmt.Errorf("watch the space: %w", err)
		}
		fed := handle.HasSynced
		if added != nil {
			fed = func() bool { return added.fed(handle.HasSynced) }
		}
		return func() { _ = informer.RemoveEventHandler(handle) }, fed, nil
	})
}

// fromHost feeds the queue from the shared watch of a kind on the host.
func (s *Syncer) fromHost(kind string, lead func(client.Object, func(Key))) {
	s.feeds.sources = append(s.feeds.sources, func(q *queue) (func(), func() bool, error) {
		f := s.host.fanouts[kind]
		if f == nil {
			return func() {}, nil, nil // it is switched off
		}
		remove, err := f.subscribe(s.space.Name, func(obj client.Object) { lead(obj, q.add) })
		return remove, nil, err
	})
}
