// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package informer

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/berth-dev/berth/internal/heapsize"
	"github.com/berth-dev/berth/internal/safego"
)

const (
	// listRetry and listRetryMax bound the pause before a list that failed is
	// tried again.
	listRetry    = 100 * time.Millisecond
	listRetryMax = 10 * time.Second
)

var (
	errLost    = errors.New("changes were missed meanwhile")
	errStopped = errors.New("the informer has stopped")
	errShared  = errors.New("the informer is shared, and read without a watch of its own")
)

// storeInformer is a [cache.SharedIndexInformer] of one kind, fed by a [Feed]:
// what it knows, it was told by the one watch that there is. At rest it has no
// goroutine, where client-go's has six and two for each handler.
//
// It lists when it starts, and again when the feed missed something. What is
// written during a list waits, and is applied if it is newer.
type storeInformer struct {
	feed    *Feed
	prefix  string
	decode  *decoder
	hold    func(bytes int64) // is called with each change of what the objects take in memory
	indexer cache.Indexer
	synced  done // with the first list
	working sync.WaitGroup

	// mu makes the handlers hear of changes in the order of the index.
	mu       sync.Mutex
	ctx      context.Context // nil until it is started
	stopped  bool
	listing  bool // a goroutine is about it
	again    bool // changes were missed during the list
	waiting  []Write
	revision int64
	held     int64 // what the objects take in memory
	handlers map[*registration]struct{}
}

var _ cache.SharedIndexInformer = (*storeInformer)(nil)

func newStoreInformer(feed *Feed, prefix string, decode *decoder, hold func(bytes int64)) *storeInformer {
	return &storeInformer{
		feed: feed, prefix: prefix, decode: decode, hold: hold,
		// With the index that all of upstream's have.
		indexer: cache.NewIndexer(cache.DeletionHandlingMetaNamespaceKeyFunc,
			cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}),
		synced:   done{name: prefix, closed: make(chan struct{})},
		handlers: map[*registration]struct{}{},
	}
}

// start begins to read the store, until ctx ends or stop is called.
func (i *storeInformer) start(ctx context.Context) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.ctx == nil {
		i.ctx = ctx
		i.relist()
	}
}

// stop ends it, and waits for its handlers to return.
func (i *storeInformer) stop() {
	i.mu.Lock()
	i.grow(-i.held)
	i.stopped = true
	for r := range i.handlers {
		r.remove()
	}
	i.mu.Unlock()
	i.feed.drop(i)
	i.working.Wait()
}

// lost is called when changes were missed.
func (i *storeInformer) lost() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.relist()
}

// relist lists in the background. The informer is locked.
func (i *storeInformer) relist() {
	if i.stopped || i.ctx.Err() != nil {
		return
	}
	if i.listing {
		i.again = true
		return
	}
	i.listing = true
	safego.Go(&i.working, "list the store", func() {
		for retry := listRetry; ; retry = min(2*retry, listRetryMax) {
			err := safego.Call("list the store", func() error { return i.list(i.ctx) })
			if err == nil || i.ctx.Err() != nil {
				return
			}
			i.feed.logger.V(1).Info("Could not list the store; Berth retries", "prefix", i.prefix, "err", err)
			select {
			case <-i.ctx.Done():
			case <-time.After(retry):
			}
		}
	}, nil)
}

func (i *storeInformer) list(ctx context.Context) error {
	if err := i.feed.WaitReady(ctx); err != nil {
		return err
	}
	if !i.subscribe() {
		return nil
	}
	stored, err := i.feed.client.Get(ctx, i.prefix, clientv3.WithPrefix())
	if err != nil {
		return fmt.Errorf("list %s: %w", i.prefix, err)
	}
	objects := make([]runtime.Object, len(stored.Kvs))
	first, decoded := !i.synced.is(), int64(0) // later, most are those that are held
	defer func() { i.hold(-decoded) }()        // those that are kept are counted as they are indexed
	for n, kv := range stored.Kvs {
		if objects[n], err = i.decode.decode(kv.Value, kv.ModRevision); err != nil {
			return fmt.Errorf("read %s: %w", kv.Key, err)
		}
		if first {
			size := heapsize.Cached(objects[n])
			decoded += size
			i.hold(size)
		}
	}

	i.mu.Lock()
	defer i.mu.Unlock()
	if i.again {
		return errLost
	}
	if i.stopped {
		return nil
	}
	i.replace(objects)
	i.revision = stored.Header.Revision
	// The index knows only of the object that came last. Controllers that wrote
	// wait until it is as new as what they wrote.
	i.indexer.Bookmark(strconv.FormatInt(i.revision, 10))
	i.listing = false
	if !i.synced.is() {
		close(i.synced.closed)
		for r := range i.handlers {
			r.push(notification{kind: synced})
		}
	}
	for _, w := range i.waiting {
		i.apply(w)
	}
	i.waiting = nil
	return nil
}

// subscribe has the feed hand on what is written from now on, unless the informer
// has stopped: a feed would hold one that has for as long as it lives.
func (i *storeInformer) subscribe() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.stopped {
		return false
	}
	i.waiting, i.again = nil, false
	i.feed.subscribe(i, i.prefix)
	return true
}

// replace makes the index hold the objects and nothing else. The informer is
// locked.
func (i *storeInformer) replace(objects []runtime.Object) {
	gone := map[string]struct{}{}
	for _, key := range i.indexer.ListKeys() {
		gone[key] = struct{}{}
	}
	for _, object := range objects {
		key, _ := cache.MetaNamespaceKeyFunc(object) // decode saw its metadata
		delete(gone, key)
		i.set(object)
	}
	for key := range gone {
		if last, ok, _ := i.indexer.GetByKey(key); ok {
			i.unset(last, cache.DeletedFinalStateUnknown{Key: key, Obj: last})
		}
	}
}

// wrote is called by the feed.
func (i *storeInformer) wrote(w Write) {
	i.mu.Lock()
	defer i.mu.Unlock()
	switch {
	case i.stopped:
	case i.listing:
		i.waiting = append(i.waiting, w)
	default:
		i.apply(w)
	}
}

// apply changes the index by a write. The informer is locked.
func (i *storeInformer) apply(w Write) {
	if w.Revision <= i.revision {
		return
	}
	object, err := i.decode.decode(w.Value, w.Revision)
	if err != nil {
		i.feed.logger.Error(err, "Could not decode a written object; Berth lists all again", "key", w.Key, "revision", w.Revision)
		i.relist()
		return
	}
	i.revision = w.Revision
	if w.Deleted {
		i.unset(object, object)
		return
	}
	i.set(object)
}

func (i *storeInformer) set(object runtime.Object) {
	old, known, _ := i.indexer.Get(object)
	if known && sameRevision(old, object) {
		return
	}
	i.grow(heapsize.Cached(object) - heapsize.Cached(old))
	// It fails without metadata only. Functions that index an object are upstream's and the syncer's; client-go panics where
	// they fail. An object that one can't take is missing from that index, and in everything else like any other.
	_ = safego.Call("index an object", func() error { return i.indexer.Update(object) })
	n := notification{kind: added, object: object, initial: !i.synced.is()}
	if known {
		n = notification{kind: updated, old: old, object: object}
	}
	for r := range i.handlers {
		r.push(n)
	}
}

// unset takes an object out, and tells of it in the form given.
func (i *storeInformer) unset(object, told any) {
	if last, ok, _ := i.indexer.Get(object); ok {
		i.grow(-heapsize.Cached(last))
	}
	_ = safego.Call("take an object from the index", func() error { return i.indexer.Delete(object) })
	for r := range i.handlers {
		r.push(notification{kind: deleted, object: told})
	}
}

// grow notes that the objects take more memory, or less. The informer is locked.
func (i *storeInformer) grow(bytes int64) {
	if !i.stopped {
		i.held += bytes
		i.hold(bytes)
	}
}

func (i *storeInformer) LastSyncResourceVersion() string {
	i.mu.Lock()
	defer i.mu.Unlock()
	return strconv.FormatInt(i.revision, 10)
}
