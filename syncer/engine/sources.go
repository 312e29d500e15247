// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"fmt"
	"slices"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/syncer/hostcache"
	"github.com/berth-dev/berth/syncer/resources"
	"github.com/berth-dev/berth/translate"
)

// sources are where a syncer's work comes from, on both sides.
type sources struct {
	all []source
	// synced returns for each source whether it has enqueued all objects that existed when it was opened.
	synced []func() bool
	remove []func()
	opened atomic.Bool
}

// source starts to fill the queue, and returns a function that ends that. synced, if not nil, reports whether all
// existing objects have been enqueued.
type source func(q *Queue) (remove func(), synced func() bool, err error)

func (s *sources) Add(one source) { s.all = append(s.all, one) }

// Open opens all sources, until one fails. What was opened must be closed in any case.
func (s *sources) Open(q *Queue) error {
	for _, open := range s.all {
		remove, synced, err := open(q)
		if err != nil {
			return err
		}
		s.remove = append(s.remove, remove)
		if synced != nil {
			s.synced = append(s.synced, synced)
		}
	}
	s.opened.Store(true)
	return nil
}

func (s *sources) Close() {
	for _, remove := range slices.Backward(s.remove) {
		remove()
	}
}

// hasSynced reports whether all objects that existed at the start have been enqueued.
func (s *sources) hasSynced() bool {
	return s.opened.Load() && !slices.ContainsFunc(s.synced, func(synced func() bool) bool { return !synced() })
}

// FromSpace fills the queue from an informer of the space.
func (s *Engine) FromSpace(informer cache.SharedIndexInformer, handle func(client.Object, func(Key))) {
	s.FromChanges(informer, func(_, is client.Object, enqueue func(Key)) { handle(is, enqueue) })
}

// FromChanges is [Engine.FromSpace] with the previous version of an object, nil if it was added or deleted. handle must
// return soon, because the informer buffers further changes for it.
func (s *Engine) FromChanges(informer cache.SharedIndexInformer, handle func(was, is client.Object, enqueue func(Key))) {
	added := s.extended[informer]
	if added == nil { // only other resources wait for it to sync, not for extensions
		s.synced = append(s.synced, informer.HasSyncedChecker())
	}
	s.Sources.Add(func(q *Queue) (func(), func() bool, error) {
		receive := func(was, obj any, enqueue func(Key)) {
			if tombstone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = tombstone.Obj
			}
			before, _ := was.(client.Object)
			if o, ok := obj.(client.Object); ok {
				handle(before, o, enqueue)
			}
		}
		registration, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc:    func(obj any) { receive(nil, obj, q.addFirst) },
			UpdateFunc: func(was, obj any) { receive(was, obj, q.Add) },
			DeleteFunc: func(obj any) { receive(nil, obj, q.Add) },
		})
		if err != nil {
			return nil, nil, fmt.Errorf("watch the space: %w", err)
		}
		synced := registration.HasSynced
		if added != nil {
			synced = func() bool { return added.hasSynced(registration.HasSynced) }
		}
		return func() { _ = informer.RemoveEventHandler(registration) }, synced, nil
	})
}

// FromHost fills the queue from the shared watch of a resource on the host.
func (s *Engine) FromHost(resource string, handle func(client.Object, func(Key))) {
	s.Sources.Add(func(q *Queue) (func(), func() bool, error) {
		f := s.Host.Router(resource)
		if f == nil {
			return func() {}, nil, nil // it is disabled
		}
		remove, err := f.Subscribe(s.Space.Name, func(obj client.Object) { handle(obj, q.Add) })
		return remove, nil, err
	})
}

// Add declares a resource that is synced to the host: its work, and the events of both sides. also, if set, is called
// for each virtual object that was added, changed, or deleted, except for changes that concern no others.
func Add[T client.Object](k *Resource[T], also func(v T, enqueue func(Key))) {
	k.FromChanges(k.Virtual, func(was, obj client.Object, enqueue func(Key)) {
		enqueue(Key{Resource: k.Name, NamespacedName: client.ObjectKeyFromObject(obj)})
		v, ok := obj.(T)
		if !ok || also == nil {
			return
		}
		if before, ok := was.(T); ok && k.ConcernsNoOthers != nil && before.GetUID() == v.GetUID() && k.ConcernsNoOthers(before, v) {
			return
		}
		also(v, enqueue)
	})
	AddToHost(k)
}

// shownOnHost reports whether an object is in the host's watches.
func (s *Engine) shownOnHost(o hostcache.Object) bool {
	_, ok := hostcache.Get[client.Object](s.Host, o.Resource, o.Namespace, o.Name)
	return ok
}

// count records what a host object uses that was added, changed, or deleted.
func (s *Engine) count(resource string, host client.Object) {
	if s.bytes == nil {
		return
	}
	o := hostcache.Object{Resource: resource, NamespacedName: client.ObjectKeyFromObject(host)}
	if !s.shownOnHost(o) {
		s.bytes.show(o, 0)
		s.HostNames.show(o, 0)
		return
	}
	s.bytes.show(o, sizeOf(host))
	s.HostNames.show(o, int64(len(resources.HostsOf(host))))
}

// AddToHost declares a resource that is synced to the host: its work and the host's events.
func AddToHost[T client.Object](k *Resource[T]) {
	k.Work[k.Name] = k.reconcile
	k.counts = append(k.counts, func() {
		for host := range hostcache.Of[T](k.Host, k.Space.Name, k.Name) {
			k.count(k.Name, host)
		}
	})
	k.FromHost(k.Name, func(obj client.Object, enqueue func(Key)) {
		key, ok := KeyOf(k.Name, obj)
		host, is := obj.(T)
		k.count(k.Name, obj)
		if !ok && is && k.OwnerOf != nil {
			key, ok = k.OwnerOf(host)
		}
		if is && k.OnHostEvent != nil {
			k.OnHostEvent(host, enqueue)
		}
		if ok {
			enqueue(key)
		}
	})
}

// Stored returns an object of the space from an informer.
func Stored[T client.Object](informer cache.SharedIndexInformer, key types.NamespacedName) (v T, exists bool) {
	item, exists, err := informer.GetIndexer().GetByKey(cache.ObjectName(key).String())
	if err != nil || !exists {
		return v, false
	}
	v, exists = item.(T)
	return v, exists
}

// KeyOf returns the key for a host object's events; ok is false if it is not synced.
func KeyOf(name string, host client.Object) (key Key, ok bool) {
	id, ok := translate.IdentityOf(host)
	return Key{Resource: name, NamespacedName: types.NamespacedName{Namespace: id.Namespace, Name: id.Name}}, ok
}
