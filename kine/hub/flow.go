// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"context"
	"errors"
	"sync"
	"time"

	kineserver "github.com/k3s-io/kine/pkg/server"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/berth-dev/berth/bounds"
)

const (
	// FlowBytes is how many bytes a watch with a flow gets before its consumer takes some of them. It gets the rest
	// from the log later. So a client that reads nothing holds no more than this and one response.
	FlowBytes = 512 << 10
	// flowFactor is how many bytes of memory one byte of a change takes: stored, decoded, and encoded.
	flowFactor = 3
	// flowRetry is the pause after the space's budget was used up.
	flowRetry = 200 * time.Millisecond
)

// Flow counts the bytes of a watch that its consumer has not taken yet, and limits them. The store delivers no more
// than it allows, and the consumer reports with Done what it has taken. It is in the context of the watch. It is safe
// for concurrent use.
type Flow struct {
	account *bounds.Account
	// exceeded is called when the space's budget for watches does not allow the next change, and repeatedly while it
	// does not. It must not block.
	exceeded func()

	mu      sync.Mutex
	held    map[int64]change // by revision
	bytes   int64
	moved   chan struct{} // closed when something was taken; nil if nobody waits
	refused bool          // by the account, at the last attempt
	wanted  int64         // size of the last refused change
	since   time.Time     // when the consumer last took something, or first got something after that
	ended   bool
}

// NewFlow returns a flow whose bytes the account counts as [bounds.WatchBytes].
func NewFlow(a *bounds.Account, exceeded func()) *Flow {
	return &Flow{account: a, exceeded: exceeded}
}

// Held returns how many bytes the consumer has not taken, and for how long it has taken none.
func (f *Flow) Held() (bytes int64, idle time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.bytes == 0 {
		return 0, 0
	}
	return f.bytes, time.Since(f.since)
}

// Done records that the consumer has taken the change of a revision, or does not need it.
func (f *Flow) Done(revision int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.done(revision)
}

// Skip records that the consumer does not want the object of a revision, in its new or its previous version. If it
// wants neither, it never takes the change.
func (f *Flow) Skip(revision int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	c, ok := f.held[revision]
	if c.objects--; ok && c.objects > 0 {
		f.held[revision] = c
		return
	}
	f.done(revision)
}

func (f *Flow) done(revision int64) {
	if c, ok := f.held[revision]; ok {
		delete(f.held, revision)
		f.give(c.size)
	}
}

// End releases everything that was not taken.
func (f *Flow) End() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ended, f.held = true, nil
	f.give(f.bytes)
}

func (f *Flow) give(size int64) {
	f.bytes -= size
	f.since = time.Now()
	f.account.Give(bounds.WatchBytes, size)
	if f.moved != nil {
		close(f.moved)
		f.moved = nil
	}
}

// take records that changes are delivered, and reports whether they may be. The first flow that waits may exceed the
// space's budget, one flow at a time. Otherwise, a change that is larger than the budget could never be delivered.
func (f *Flow) take(changes []change) bool {
	if f == nil {
		return true
	}
	var size int64
	for _, c := range changes {
		size += c.size
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.ended: // what is still being delivered belongs to a watch that ends
		return true
	case f.bytes > 0 && f.bytes+size > FlowBytes:
		return false
	}
	if err := f.account.Take(bounds.WatchBytes, size); err != nil {
		f.refused, f.wanted = true, size
		f.exceeded()
		if f.bytes > 0 || !f.account.TakeBeyond(bounds.WatchBytes, size) {
			return false
		}
		f.refused = false
	}
	if f.bytes == 0 {
		f.since = time.Now()
	}
	if f.held == nil {
		f.held = map[int64]change{}
	}
	for _, c := range changes {
		f.held[c.revision] = c
	}
	f.bytes += size
	return true
}

// admits reports whether take may succeed. It is called before the changes are read from the store. If it returns
// false, ready must be called.
func (f *Flow) admits() bool {
	if f == nil || f.account.Used(bounds.WatchBytes) <= f.account.Limit(bounds.WatchBytes) {
		return true
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.refused = !f.ended
	return f.ended
}

// full reports whether what was refused would be refused again. The flow must be locked.
func (f *Flow) full() bool {
	used := f.account.Used(bounds.WatchBytes)
	if f.bytes > 0 {
		used += f.wanted
	}
	return used > f.account.Limit(bounds.WatchBytes)
}

// ready returns when everything was taken and the space's budget allows more, so that take may succeed, or when the
// context or the watch has ended.
func (f *Flow) ready(ctx context.Context, ended <-chan struct{}) {
	if f == nil {
		return
	}
	for {
		f.mu.Lock()
		full := f.refused && !f.ended && f.full()
		waits := f.refused
		f.refused = full
		if !waits && (f.ended || f.bytes == 0) {
			f.mu.Unlock()
			return
		}
		var again <-chan time.Time
		if waits {
			again = time.After(flowRetry) // other flows take their changes or end in the meantime
		}
		if full {
			f.exceeded()
		}
		if f.moved == nil {
			f.moved = make(chan struct{})
		}
		moved := f.moved
		f.mu.Unlock()
		select {
		case <-moved:
		case <-again:
		case <-ended:
			return
		case <-ctx.Done():
			return
		}
	}
}

// change is what a flow counts for one change.
type change struct {
	revision, size int64
	objects        int // objects that the consumer looks at; for an update, the new and the previous one
}

func changesOf(events []*clientv3.Event) []change {
	changes := make([]change, 0, len(events))
	for _, e := range events {
		c := change{revision: e.Kv.ModRevision, size: flowFactor * int64(sizeOfEvent(e)), objects: 1}
		if e.PrevKv != nil && e.Type != clientv3.EventTypeDelete {
			c.objects = 2
		}
		changes = append(changes, c)
	}
	return changes
}

type flowKey struct{}

// WithFlow returns a context for a watch, and for the lists with which it begins.
func WithFlow(ctx context.Context, f *Flow) context.Context {
	return context.WithValue(ctx, flowKey{}, f)
}

// FlowOf returns the flow of ctx, or nil.
func FlowOf(ctx context.Context) *Flow {
	f, _ := ctx.Value(flowKey{}).(*Flow)
	return f
}

// errFlow means that a list did not fit into the budget of its watch. It is read again when it fits.
var errFlow = errors.New("the space's budget for watches is used up")

// AsksRevision tells whether a list has a limit of one, and so only asks for the store's revision. kine asks for one more than its client.
func AsksRevision(end string, limit int64) bool { return end != "" && limit <= 2 }

// Taken records that the list with which a watch begins is delivered to the flow, or returns errFlow. A list that only asks for the store's
// revision is not recorded.
func (f *Flow) Taken(events kineserver.Events, end string, limit int64) error {
	if f == nil || AsksRevision(end, limit) {
		return nil
	}
	if end != "" && int64(len(events)) == limit {
		events = events[:limit-1] // the last one only shows that there are more
	}
	changes := make([]change, 0, len(events))
	for _, e := range events {
		changes = append(changes, change{revision: e.KV.ModRevision, size: flowFactor * int64(256+len(e.KV.Value)), objects: 1})
	}
	if !f.take(changes) {
		return errFlow
	}
	return nil
}

// ReadWhenReady reads a list when the flow in its context, if there is one, allows it.
func ReadWhenReady[T any](ctx context.Context, ended <-chan struct{}, read func() (int64, T, error)) (int64, T, error) {
	for f := FlowOf(ctx); ; {
		f.ready(ctx, ended)
		revision, result, err := read()
		select {
		case <-ended:
			return revision, result, err
		default:
		}
		if !errors.Is(err, errFlow) || ctx.Err() != nil {
			return revision, result, err
		}
	}
}
