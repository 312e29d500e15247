// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package replicator copies what is written to the stores of spaces to buckets, within a second while a bucket is reachable (D1, D2). `berth
// up` has one [Replicator] for the spaces of its shard. A store that is not written to has no timer and no goroutine.
//
// A replica is one or more bases and the segments after them, see [snapshot.Replica]. A follower continues the stream in the bucket if its
// last row is a row of the store, and begins another stream with a new base otherwise: after a restore, after a move to another shard, or
// when the store was compacted before the bucket had the rows. A store that never had the last row changes nothing in the bucket. Before all that,
// a follower claims its stream, so that of several processes, the one that opened the store last counts.
//
// A store that another process has open is followed by requests to that process, see [Replicator.Follow].
//
// A write never waits for a bucket.
package replicator

import (
	"context"
	"errors"
	"os"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"github.com/berth-dev/berth/kine"
	"github.com/berth-dev/berth/snapshot"
	"github.com/berth-dev/berth/snapshot/feed"
	"github.com/berth-dev/berth/snapshot/segment"
)

const (
	// defaultDelay is between the first write that is not in the bucket and the upload of the segment with it.
	defaultDelay = 500 * time.Millisecond
	// maxUploads and maxBases are how many segments, and how many bases, are read and uploaded at once. maxReceived is how many other processes
	// send their stores at once.
	maxUploads, maxBases, maxReceived = 48, 2, 4
	// uploadTimeout limits the upload of a segment. locateTimeout limits a look at what the replica has, which may be a long list.
	uploadTimeout, locateTimeout = 5 * time.Second, time.Minute
	// baseTimeout limits the upload of a base.
	baseTimeout = 30 * time.Minute
	// closeTimeout limits the last upload of a store that is about to close, and closeTimeoutFailed if the bucket was not reachable.
	closeTimeout, closeTimeoutFailed = 3 * time.Second, 500 * time.Millisecond
	// firstRetry and longestRetry are the pauses between attempts to reach a bucket.
	firstRetry, longestRetry = time.Second, 30 * time.Second
	// basePause and longestBasePause are between two first bases of streams of a space. The pause doubles while they are needed again and again.
	basePause, longestBasePause = time.Minute, 30 * time.Minute
	// behindAfter is the lag from which a replica counts as behind.
	behindAfter = 5 * time.Second
	// publishEvery is how often a state is published that differs only in its revision and time.
	publishEvery = time.Minute
	// maxSegments, and the larger of minSegmentBytes and the size of the base, are how much there is before there is a new base.
	maxSegments, minSegmentBytes = 1000, 8 << 20
)

// Config configures a replicator. Functions may be called concurrently.
type Config struct {
	// Destination returns the bucket to which a space is replicated; nil if it isn't. The result may change, see [Replicator.Check]. A bucket
	// must always be the same value.
	Destination func(space string) *snapshot.Bucket
	// SpaceDir returns the directory of a space. StoreID and Moves return the ID of the store in it, and how often it has moved.
	SpaceDir func(space string) string
	StoreID  func(space string) (string, error)
	Moves    func(space string) (int64, error)
	// Counts reports whether the store that this process has of a space is the one that counts, although the replica is of one that had moved
	// more often. It must not answer from a cache. Nil: it doesn't.
	Counts func(ctx context.Context, space string) (bool, error)
	// Scratch is the directory for incomplete bases. It is emptied at the start.
	Scratch string
	// Volume is the file system of Scratch; nil for no limit.
	Volume *kine.Volume
	// Changed, if set, is called when [Replicator.State] of a space has changed. It must not block.
	Changed func(space string)
	// Delay is between a write and its upload. Default: half a second.
	Delay time.Duration
	// MaxSegments is how many segments there may be before there is a new base. Default: 1000.
	MaxSegments int
	// BasePause is the shortest pause between two first bases of streams of a space while its store is open. Default: a minute.
	BasePause time.Duration
	Logger    klog.Logger
}

// Reason says why a replica is as it is.
type Reason string

// Reasons.
const (
	UpToDate Reason = "UpToDate"
	// Behind means that the bucket gets what is missing, or that the store can't be read or copied: then there is an error.
	Behind      Reason = "Behind"
	Unreachable Reason = "Unreachable"
	// TakenOver means that another process replicates the space.
	TakenOver Reason = "TakenOver"
	// StoreBehind means that the replica has writes that the store doesn't have: the store is an old one, or was lost. Nothing of the replica is
	// changed.
	StoreBehind Reason = "StoreBehindReplica"
)

// State is what a replica has.
type State struct {
	Reason Reason
	// Revision is that of the last row in the bucket, and Time is when this was known to be the last row of the store. Both are zero if
	// there is no base yet.
	Revision int64
	Time     time.Time
	// Since is when the first row was written that the bucket doesn't have, and Rows is how many rows it doesn't have. Both are zero if it
	// has all.
	Since time.Time
	Rows  int64
	Err   string // of the last attempt
}

// Replicator replicates stores. It is safe for concurrent use.
type Replicator struct {
	config  Config
	codec   *segment.Codec
	uploads chan struct{}
	bases   chan struct{}
	// received has a value for each other process that sends its store.
	received chan struct{}

	mu        sync.Mutex
	followers map[string]*follower
}

// New returns a replicator.
func New(c Config) (*Replicator, error) {
	if c.Delay <= 0 {
		c.Delay = defaultDelay
	}
	if c.BasePause <= 0 {
		c.BasePause = basePause
	}
	if c.MaxSegments <= 0 {
		c.MaxSegments = maxSegments
	}
	if err := errors.Join(os.RemoveAll(c.Scratch), os.MkdirAll(c.Scratch, 0o700)); err != nil {
		return nil, err
	}
	codec, err := segment.NewCodec()
	if err != nil {
		return nil, err
	}
	return &Replicator{config: c, codec: codec, uploads: make(chan struct{}, maxUploads), bases: make(chan struct{}, maxBases), received: make(chan struct{}, maxReceived), followers: map[string]*follower{}}, nil
}

// Of returns what follows the store of a space, for [kine.Options]. What is known of the replica stays while the store is closed, so that
// a space that wakes costs no request to the bucket until it writes.
func (r *Replicator) Of(space string) kine.Replica { return r.follower(space, true) }

func (r *Replicator) follower(space string, create bool) *follower {
	r.mu.Lock()
	defer r.mu.Unlock()
	f := r.followers[space]
	if f == nil && create {
		f = &follower{r: r, space: space, turn: make(chan struct{}, 1), asked: make(chan struct{}, 1), following: make(chan struct{}, 1)}
		f.compactable.Store(feed.NoLimit)
		r.followers[space] = f
	}
	return f
}

// Check has a space replicated whose destination may have changed.
func (r *Replicator) Check(space string) {
	if f := r.follower(space, false); f != nil {
		f.check()
	}
}

// Restored says that this platform has the store of a space restored by its own process, so that the replica begins anew without a pause.
func (r *Replicator) Restored(space string) {
	if f := r.follower(space, false); f != nil {
		f.restored.Store(true)
	}
}

// Forget forgets what is known about the replica of a space that is not this process's any more. The replica itself stays.
func (r *Replicator) Forget(space string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if f := r.followers[space]; f != nil && !f.open() {
		delete(r.followers, space)
	}
}

// State returns what the replica of a space has, as it was published last, unless it has fallen behind since; false if nothing is known.
func (r *Replicator) State(space string) (State, bool) {
	f := r.follower(space, false)
	if f == nil {
		return State{}, false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	state := f.published
	if state.Reason == UpToDate && f.late() {
		state.Reason, state.Since = Behind, f.pending
		if f.store != nil {
			state.Rows = max(0, f.store.Last()-state.Revision)
		}
	}
	return state, state.Reason != ""
}

// Lag returns for how long the oldest row of a space has not been in the bucket; 0 if there is none. ok is false if the space is not
// replicated.
func (r *Replicator) Lag(space string) (lag time.Duration, ok bool) {
	f := r.follower(space, false)
	if f == nil {
		return 0, false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.pending.IsZero() {
		lag = time.Since(f.pending)
	}
	return lag, f.published.Reason != ""
}
