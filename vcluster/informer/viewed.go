// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package informer

import (
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

type (
	kubernetesClient = kubernetes.Interface
	resync           = time.Duration
)

// viewed is an informer as a view's user sees it.
type viewed struct {
	cache.SharedIndexInformer
	view *View
}

func (i viewed) AddEventHandler(h cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	return i.added(i.SharedIndexInformer.AddEventHandler(held{h, i.view.released}))
}

func (i viewed) AddEventHandlerWithResyncPeriod(
	h cache.ResourceEventHandler, resync time.Duration,
) (cache.ResourceEventHandlerRegistration, error) {
	return i.added(i.SharedIndexInformer.AddEventHandlerWithResyncPeriod(held{h, i.view.released}, resync))
}

func (i viewed) AddEventHandlerWithOptions(
	h cache.ResourceEventHandler, o cache.HandlerOptions,
) (cache.ResourceEventHandlerRegistration, error) {
	return i.added(i.SharedIndexInformer.AddEventHandlerWithOptions(held{h, i.view.released}, o))
}

func (i viewed) added(
	handle cache.ResourceEventHandlerRegistration, err error,
) (cache.ResourceEventHandlerRegistration, error) {
	if err == nil {
		i.view.added(handler{i.SharedIndexInformer, handle})
	}
	return handle, err
}

func (i viewed) RemoveEventHandler(handle cache.ResourceEventHandlerRegistration) error {
	i.view.removed(handle)
	return i.SharedIndexInformer.RemoveEventHandler(handle)
}

// AddIndexers adds those indexes that the informer lacks: a controller that
// starts again finds those of its last run.
func (i viewed) AddIndexers(indexers cache.Indexers) error {
	lacking := cache.Indexers{}
	has := i.GetIndexer().GetIndexers()
	for name, index := range indexers {
		if _, ok := has[name]; !ok {
			lacking[name] = index
		}
	}
	return i.SharedIndexInformer.AddIndexers(lacking)
}

// held keeps an informer's queue of one handler waiting; others go on.
type held struct {
	next     cache.ResourceEventHandler
	released <-chan struct{}
}

func (h held) OnAdd(object any, initial bool) {
	<-h.released
	h.next.OnAdd(object, initial)
}

func (h held) OnUpdate(old, object any) {
	<-h.released
	h.next.OnUpdate(old, object)
}

func (h held) OnDelete(object any) {
	<-h.released
	h.next.OnDelete(object)
}
