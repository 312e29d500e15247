// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package feed gives the platform the rows of the store of a dedicated space, which is open in a process of its own. The platform replicates them,
// see package replicator, so that the process needs no credentials for a bucket. [Feed] is the side of the process, which follows its store, and
// [Client] that of the platform. A tenant may have taken over the process, so nothing that a client returns is trusted.
//
// The platform has one request waiting in the process, which is answered when the store has been opened, written to, or is about to be closed.
// With that request, the process learns which rows the bucket has.
package feed

import (
	"math"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/berth-dev/berth/kine"
)

const (
	// MaxBacklog is how many rows a store keeps for its replica instead of compacting them. If there are more, the replica gets a new base.
	MaxBacklog = 100_000
	// NoLimit is the revision up to which a store may be compacted that has no replica.
	NoLimit = math.MaxInt64 / 4

	// unaskedFor is for how long a process keeps rows that has not been asked since it started, and askedFor for how long it does after a request.
	// A dedicated space runs on without Berth for an hour.
	unaskedFor, askedFor = 10 * time.Minute, time.Hour
	// closeTimeout limits how long a store that is about to close waits until the platform has its rows, and askTimeout until the platform asks.
	closeTimeout, askTimeout = 4 * time.Second, time.Second
	// recently is within which time the platform must have asked for a store to wait for it.
	recently = 10 * time.Second
)

// State is what a process says of its store.
type State struct {
	// Opening identifies one opening of the store. It is 0 while the store is closed.
	Opening uint64 `json:"opening,omitempty"`
	// Closing means that the store waits until the platform has its rows, and then closes.
	Closing bool `json:"closing,omitempty"`
	// Last is the revision of the last write, and Compacted up to which the store was compacted. While it is closed, they are what they were; 0
	// if it has not been open.
	Last      int64 `json:"last,omitempty"`
	Compacted int64 `json:"compacted,omitempty"`
}

// Seen is what the platform knows.
type Seen struct {
	State
	// Has is the revision of the last row in the bucket; 0 if that isn't known. Keep is up to which revision the store may be compacted; -1 if that
	// isn't known.
	Has, Keep int64
}

// Compactable returns up to which revision a store may be compacted of which a replica needs the rows after keep.
func Compactable(keep, last, compacted int64) int64 {
	// After a gap, the rows are of no use: there is going to be a new base.
	if last-keep > MaxBacklog || compacted > keep+1 {
		return NoLimit
	}
	return keep
}

// Feed implements [kine.Replica] for the store of a process. It is safe for concurrent use.
type Feed struct {
	mu    sync.Mutex
	store *kine.Store // nil while it is closed
	state State
	// changed is closed when state changes; nil if nobody waits for that. Last is looked up in the store.
	changed chan struct{}
	// confirmed is closed when the platform has what it gets of a store that is about to close; nil if there is none.
	confirmed chan struct{}
	// reads are those of the open store.
	reads sync.WaitGroup

	keep  int64 // as [Seen.Keep]
	has   int64
	until time.Time // when keep ends
	polls int       // waiting requests
	ended time.Time // when the last request ended
}

// New returns a feed of a process that starts.
func New() *Feed { return &Feed{keep: -1, until: time.Now().Add(unaskedFor)} }

var _ kine.Replica = &Feed{}

// Opened implements [kine.Replica], as the following methods.
func (f *Feed) Opened(s *kine.Store) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.store, f.state = s, State{Opening: rand.Uint64() | 1}
	f.refreshLocked()
	f.changedLocked()
}

// refreshLocked updates the state of an open store.
func (f *Feed) refreshLocked() {
	if f.store != nil {
		f.state.Last, f.state.Compacted = f.store.Last(), f.store.CompactRevision()
	}
}

func (f *Feed) changedLocked() {
	if f.changed != nil {
		close(f.changed)
		f.changed = nil
	}
}

// Written implements [kine.Replica].
func (f *Feed) Written() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.changedLocked()
}

// Compactable implements [kine.Replica].
func (f *Feed) Compactable() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	if time.Now().After(f.until) {
		return NoLimit
	}
	f.refreshLocked()
	if f.keep < 0 { // what the bucket has isn't known yet
		return f.state.Compacted
	}
	return Compactable(f.keep, f.state.Last, f.state.Compacted)
}

// Closing implements [kine.Replica]. It waits until the platform has uploaded what is left, and gives up after a while.
func (f *Feed) Closing() {
	f.mu.Lock()
	f.refreshLocked()
	if f.has < f.state.Last && (f.polls > 0 || time.Since(f.ended) < recently) {
		f.state.Closing = true
		confirmed, began := make(chan struct{}), time.Now()
		f.confirmed = confirmed
		f.changedLocked()
		f.mu.Unlock()
		f.await(confirmed, began)
		f.mu.Lock()
		f.confirmed = nil
		f.refreshLocked()
	}
	f.store, f.state.Opening, f.state.Closing = nil, 0, false
	f.changedLocked()
	f.mu.Unlock()
	f.reads.Wait()
}

func (f *Feed) await(confirmed chan struct{}, began time.Time) {
	timer := time.NewTimer(askTimeout)
	defer timer.Stop()
	for {
		select {
		case <-confirmed:
			return
		case <-timer.C:
		}
		f.mu.Lock()
		answers := f.polls > 0 || !f.ended.Before(began) // if no request waits, one has ended since, and the platform uploads
		f.mu.Unlock()
		left := closeTimeout - time.Since(began)
		if !answers || left <= 0 {
			return
		}
		timer.Reset(left)
	}
}

// ask notes what the platform knows.
func (f *Feed) ask(seen Seen) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.polls++
	f.until = time.Now().Add(askedFor)
	f.keep, f.has = seen.Keep, seen.Has
	if f.confirmed != nil && seen.Closing && seen.Opening == f.state.Opening {
		close(f.confirmed)
		f.confirmed = nil
	}
}

func (f *Feed) answered() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.polls--
	f.ended = time.Now()
}

// news returns the state, and whether the platform doesn't know it. Otherwise, changed is closed when that may have changed.
func (f *Feed) news(seen State) (state State, is bool, changed <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.refreshLocked()
	seen.Compacted = f.state.Compacted // which is no news by itself
	if f.state != seen {
		return f.state, true, nil
	}
	if f.changed == nil {
		f.changed = make(chan struct{})
	}
	return f.state, false, f.changed
}

// IsOpen reports whether the store of an opening is open.
func (f *Feed) IsOpen(opening uint64) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.store != nil && f.state.Opening == opening
}

// read returns the store of an opening; nil if it is closed. end must be called after it was read.
func (f *Feed) read(opening uint64) (store *kine.Store, end func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.store == nil || f.state.Opening != opening {
		return nil, nil
	}
	f.reads.Add(1)
	return f.store, f.reads.Done
}
