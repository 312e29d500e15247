// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package views

import (
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/metadata/metadatainformer"

	"github.com/berth-dev/berth/bounds"
	"github.com/berth-dev/berth/internal/heapsize"
)

// Counted are informers that know metadata only, whose objects an account counts: of custom resources, which no other
// informer holds.
type Counted struct {
	metadatainformer.SharedInformerFactory
	account *bounds.Account

	mu       sync.Mutex
	counters map[schema.GroupVersionResource]*heapsize.Counter
}

// NewCounted counts the objects of the informers of kinds.
func NewCounted(a *bounds.Account, kinds metadatainformer.SharedInformerFactory) *Counted {
	return &Counted{SharedInformerFactory: kinds, account: a, counters: map[schema.GroupVersionResource]*heapsize.Counter{}}
}

// ForResource returns an informer whose objects are counted, however often it is asked for.
func (k *Counted) ForResource(r schema.GroupVersionResource) informers.GenericInformer {
	found := k.SharedInformerFactory.ForResource(r)
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.counters[r] == nil {
		counter, err := heapsize.Count(found.Informer(), func(bytes int64) { k.account.Add(bounds.CachedBytes, bytes) })
		if err == nil { // else it has stopped
			k.counters[r] = counter
		}
	}
	return found
}

// Shutdown ends what counts, and waits for the informers.
func (k *Counted) Shutdown() {
	k.mu.Lock()
	for _, counter := range k.counters {
		counter.Stop()
	}
	k.mu.Unlock()
	k.SharedInformerFactory.Shutdown()
}
