// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/cacher"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/berth-dev/berth/bounds"
	"github.com/berth-dev/berth/internal/safego"
	"github.com/berth-dev/berth/vcluster/builtin"
	"github.com/berth-dev/berth/vcluster/refusal"
)

const (
	// A watch cache pays where long lists are read again and again: without one,
	// each list reads and decodes every object. It holds all objects of its
	// resource, so it is kept only as long as it is used, and only for a store
	// that is not too large to be held in memory.
	cachedListLength = 500
	cachedListQuiet  = time.Minute // between two long lists, and from the last one to the end of the cache
	cachedStoreBytes = 32 << 20
	// cachedListsMax bounds the caches of a process. An object in memory may take
	// several times what it takes encoded.
	cachedListsMax = 8
	// cachedListsOfSpace leaves others theirs, however many lists one space reads.
	cachedListsOfSpace = 2
)

// cacheSlots are taken by the caches of all spaces of the process, whose memory
// they share.
var cacheSlots = semaphore.NewWeighted(cachedListsMax) //nolint:gochecknoglobals // See above.

// listCaches are the watch caches of a store. Upstream has one for each
// resource, whether it is read or not.
type listCaches struct {
	used    func() (used, limit int64)
	account *bounds.Account
	clock   clock.WithDelayedExecution

	mu     sync.Mutex
	open   map[*cachedLists]struct{} // that have a cache
	closed bool
}

func newListCaches(used func() (used, limit int64), a *bounds.Account, c clock.WithDelayedExecution) *listCaches {
	return &listCaches{used: used, account: a, clock: c, open: map[*cachedLists]struct{}{}}
}

// Add returns a storage like next whose long lists may come from a cache.
func (c *listCaches) Add(next storage.Interface, r builtin.Resource) *cachedLists {
	return &cachedLists{Interface: next, resource: r, caches: c}
}

// close ends all caches, and lets none begin.
func (c *listCaches) close() {
	c.mu.Lock()
	c.closed = true
	open := c.open
	c.open = nil
	c.mu.Unlock()
	var wg sync.WaitGroup
	for l := range open {
		safego.Go(&wg, "drop a cache of lists", l.drop, nil)
	}
	wg.Wait()
}

// enter notes that l has a cache of about a size in memory, and reports whether it
// may. If so, leave must follow.
func (c *listCaches) enter(l *cachedLists, size int64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || len(c.open) >= cachedListsOfSpace || c.account.Take(bounds.MemoryBytes, size) != nil {
		return false
	}
	if !cacheSlots.TryAcquire(1) {
		c.account.Give(bounds.MemoryBytes, size)
		return false
	}
	c.open[l] = struct{}{}
	return true
}

func (c *listCaches) leave(l *cachedLists, size int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.open, l)
	c.account.Give(bounds.MemoryBytes, size)
	cacheSlots.Release(1)
}

// cachedLists is a storage. Watches, reads of one object and writes do without
// the cache: changes are handed on by the store as they are committed.
type cachedLists struct {
	storage.Interface
	resource builtin.Resource
	caches   *listCaches

	mu    sync.RWMutex // held for reading while a list is read from the cache
	cache *listCache   // nil if there is none

	lastMu sync.Mutex
	last   time.Time // when a long list was last read
}

type listCache struct {
	lists *cacher.CacheDelegator
	stop  func()
	timer clock.Timer
	size  int64 // about what it takes in memory
}

func (l *cachedLists) GetList(ctx context.Context, key string, opts storage.ListOptions, list runtime.Object) error {
	// A cache has no earlier pages and versions.
	whole := opts.Predicate.Limit == 0 && opts.Predicate.Continue == "" && opts.ResourceVersionMatch != metav1.ResourceVersionMatchExact
	if !whole {
		return l.Interface.GetList(ctx, key, opts, list)
	}
	done, err := l.cachedList(ctx, key, opts, list)
	if !done {
		err = l.Interface.GetList(ctx, key, opts, list)
	}
	if err == nil && meta.LenList(list) >= cachedListLength && l.touch() && !done {
		l.begin(sizeOfList(list))
	}
	return err
}

// cachedList reads the list from the cache, if there is one that is filled.
func (l *cachedLists) cachedList(ctx context.Context, key string, opts storage.ListOptions, list runtime.Object) (bool, error) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if l.cache == nil || l.cache.lists.ReadinessCheck() != nil {
		return false, nil
	}
	if used, _ := l.caches.used(); used > cachedStoreBytes {
		l.cache.timer.Reset(0)
		return false, nil
	}
	err := l.cache.lists.GetList(ctx, key, opts, list)
	if apierrors.IsTooManyRequests(err) { // it is being filled anew
		return false, nil
	}
	if err == nil { // the objects are the cache's, which lists them by value
		err = refusal.Status(bounds.ReservationOf(ctx).Grow(sizeOfListed(list)), l.resource.Config.GroupResource, "")
	}
	return true, err
}

// touch notes that a long list was read, and reports whether another was not
// long ago.
func (l *cachedLists) touch() bool {
	l.lastMu.Lock()
	defer l.lastMu.Unlock()
	now := l.caches.clock.Now()
	again := now.Sub(l.last) < cachedListQuiet
	l.last = now
	return again
}

// begin makes a cache, which fills by itself.
func (l *cachedLists) begin(size int64) {
	if used, _ := l.caches.used(); used > cachedStoreBytes {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cache != nil || !l.caches.enter(l, size) {
		return
	}
	r := l.resource
	c, err := cacher.NewCacherFromConfig(cacher.Config{
		Storage:             l.Interface,
		Versioner:           storage.APIObjectVersioner{},
		GroupResource:       r.Config.GroupResource,
		EventsHistoryWindow: r.Config.EventsHistoryWindow,
		ResourcePrefix:      r.Prefix,
		KeyFunc:             r.Key,
		NewFunc:             r.New,
		NewListFunc:         r.NewList,
		GetAttrsFunc:        r.Attributes,
		IndexerFuncs:        r.Triggers,
		Indexers:            r.Indexers,
		Codec:               r.Config.Codec,
	})
	if err != nil {
		l.caches.leave(l, size)
		klog.Background().Error(err, "Making a watch cache", "resource", r.Config.GroupResource)
		return
	}
	delegator := cacher.NewCacheDelegator(c, l.Interface)
	l.cache = &listCache{lists: delegator, size: size, stop: func() {
		delegator.Stop()
		c.Stop()
	}}
	l.cache.timer = l.caches.clock.AfterFunc(cachedListQuiet, func() {
		go safego.Run("look at a cache of lists", l.look, nil)
	}) // a clock may hold a lock meanwhile
}

// look ends the cache if it is not used, or its store has grown too large.
func (l *cachedLists) look() {
	l.lastMu.Lock()
	quiet := l.caches.clock.Now().Sub(l.last)
	l.lastMu.Unlock()
	if used, _ := l.caches.used(); quiet >= cachedListQuiet || used > cachedStoreBytes {
		l.drop()
		return
	}
	l.mu.RLock()
	defer l.mu.RUnlock()
	if l.cache != nil {
		l.cache.timer.Reset(cachedListQuiet - quiet)
	}
}

// drop ends the cache, if there is one, when the lists that are read from it
// have been.
func (l *cachedLists) drop() {
	l.mu.Lock()
	dropped := l.cache
	l.cache = nil
	if dropped != nil {
		defer l.caches.leave(l, dropped.size) // when it has ended: until then it takes its slot
	}
	l.mu.Unlock()
	if dropped != nil {
		dropped.timer.Stop()
		dropped.stop()
	}
}
