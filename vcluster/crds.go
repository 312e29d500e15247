// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package vcluster

import (
	"sync"

	crdinformers "k8s.io/apiextensions-apiserver/pkg/client/informers/externalversions/apiextensions/v1"
	"k8s.io/client-go/tools/cache"
)

// watchedCRDs reports when the controller that uses it has seen its informer synced. That controller (crdregistration)
// waits only for that before it signals another, which waits for the signal without end. If a server stopped before
// that, the other controller would never end.
type watchedCRDs struct {
	crdinformers.CustomResourceDefinitionInformer
	once   sync.Once
	synced chan struct{}
}

func watchCRDs(i crdinformers.CustomResourceDefinitionInformer) *watchedCRDs {
	return &watchedCRDs{CustomResourceDefinitionInformer: i, synced: make(chan struct{})}
}

func (w *watchedCRDs) Informer() cache.SharedIndexInformer {
	return watchedInformer{w.CustomResourceDefinitionInformer.Informer(), w}
}

type watchedInformer struct {
	cache.SharedIndexInformer
	watched *watchedCRDs
}

func (i watchedInformer) HasSynced() bool {
	synced := i.SharedIndexInformer.HasSynced()
	if synced {
		i.watched.once.Do(func() { close(i.watched.synced) })
	}
	return synced
}
