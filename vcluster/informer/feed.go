// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package informer

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/klog/v2"

	"github.com/berth-dev/berth/internal/safego"
)

const (
	// Root is the prefix of all of a store's objects.
	Root = "/registry/"

	// feedRetry is the pause before a watch that ended is made anew.
	feedRetry = 200 * time.Millisecond
)

// Write is one change in a store.
type Write struct {
	Key string
	// Value is what was stored or, if it was deleted, what was there before.
	Value []byte
	// Before is what an update replaced, or a deletion removed.
	Before []byte
	// Revision is the store's, of this change.
	Revision int64
	Created  bool
	Deleted  bool
}

// Observer is told of every write. It must return soon: all informers of the
// store wait for it.
type Observer interface {
	// Wrote is called for each write, in order.
	Wrote(Write)
	// Lost is called when writes were missed.
	Lost()
}

// sink is an [Observer] of some keys that, once it has missed something, hears
// no more until it subscribes again.
type sink interface {
	wrote(Write)
	lost()
}

// Feed hands on what is written to a store, from one watch. Its methods may be
// called concurrently.
type Feed struct {
	client *clientv3.Client
	logger klog.Logger
	ready  chan struct{} // closed when nothing after last is missed any more

	mu        sync.Mutex
	last      int64           // revision up to which writes were handed on
	sinks     map[sink]string // and the prefix that each wants
	observers []Observer
}

// NewFeed returns a feed that does nothing until it is run.
func NewFeed(client *clientv3.Client, logger klog.Logger) *Feed {
	return &Feed{client: client, logger: logger, ready: make(chan struct{}), sinks: map[sink]string{}}
}

// Observe adds o. It is told of every write that comes after Observe returned
// and the feed is ready.
func (f *Feed) Observe(o Observer) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.observers = append(f.observers, o)
}

// WaitReady returns when writes are handed on.
func (f *Feed) WaitReady(ctx context.Context) error {
	select {
	case <-f.ready:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Run hands on writes until ctx ends.
func (f *Feed) Run(ctx context.Context) {
	defer f.endAll()
	begun := false
	for ctx.Err() == nil {
		var err error
		if !begun {
			if err = f.begin(ctx); err == nil {
				begun = true
			}
		} else {
			err = safego.Call("watch the store", func() error { return f.follow(ctx) })
			begun = !errors.Is(err, rpctypes.ErrCompacted)
		}
		if err == nil {
			continue
		}
		if ctx.Err() == nil {
			f.logger.V(1).Info("Watch of the store ended; Berth restarts it", "err", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(feedRetry):
		}
	}
}

// begin makes now the revision to go on from. Whoever followed the feed missed
// something, unless it is the first time.
func (f *Feed) begin(ctx context.Context) error {
	now, err := f.client.Get(ctx, Root, clientv3.WithLimit(1), clientv3.WithKeysOnly(), clientv3.WithPrefix())
	if err != nil {
		return fmt.Errorf("read the store's revision: %w", err)
	}
	f.mu.Lock()
	f.last = now.Header.Revision
	f.mu.Unlock()
	select {
	case <-f.ready:
		f.endAll()
		for _, o := range f.all() {
			o.Lost()
		}
	default:
		close(f.ready)
	}
	return nil
}

// follow hands on writes until the watch ends.
func (f *Feed) follow(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	f.mu.Lock()
	from := f.last + 1
	f.mu.Unlock()
	for response := range f.client.Watch(ctx, Root, clientv3.WithPrefix(), clientv3.WithPrevKV(), clientv3.WithRev(from)) {
		if err := response.Err(); err != nil {
			return err
		}
		for _, event := range response.Events {
			f.hand(event)
		}
	}
	return errors.New("the watch ended")
}

func (f *Feed) hand(event *clientv3.Event) {
	w := Write{
		Key: string(event.Kv.Key), Value: event.Kv.Value, Revision: event.Kv.ModRevision,
		Created: event.IsCreate(), Deleted: event.Type == clientv3.EventTypeDelete,
	}
	if event.PrevKv != nil {
		w.Before = event.PrevKv.Value
	}
	if w.Deleted {
		w.Value = w.Before
	}
	f.mu.Lock()
	var to []sink
	for s, prefix := range f.sinks {
		if strings.HasPrefix(w.Key, prefix) {
			to = append(to, s)
		}
	}
	f.last = max(f.last, w.Revision)
	observers := f.observers
	f.mu.Unlock()
	// What is written is a tenant's: whoever can't take it must keep back no other.
	for _, o := range observers {
		safego.Run("look at a write", func() { o.Wrote(w) }, nil)
	}
	for _, s := range to {
		safego.Run("hand on a write", func() { s.wrote(w) }, nil)
	}
}

func (f *Feed) all() []Observer {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.observers
}

// subscribe makes s hear of all writes under prefix of a later revision than the
// store has now. The feed must be ready.
func (f *Feed) subscribe(s sink, prefix string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.sinks[s] = prefix
}

func (f *Feed) drop(s sink) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.sinks, s)
}

// endAll makes all sinks begin anew. Only Run calls it, and what it calls.
func (f *Feed) endAll() {
	f.mu.Lock()
	sinks := f.sinks
	f.sinks = map[sink]string{}
	f.mu.Unlock()
	for s := range sinks {
		s.lost()
	}
}
