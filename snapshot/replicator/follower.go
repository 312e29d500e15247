// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package replicator

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/berth-dev/berth/internal/safego"
	"github.com/berth-dev/berth/kine"
	"github.com/berth-dev/berth/snapshot"
	"github.com/berth-dev/berth/snapshot/feed"
)

// errTakenOver means that another process has begun a later stream, or has written to this one.
var errTakenOver = errors.New("another process replicates this space")

// errStoreBehind means that the replica has writes that the store doesn't have and never had. The replica may be the only copy.
var errStoreBehind = errors.New("the replica has writes that the store doesn't have, and stays as it is")

// follower replicates the store of a space while it is open.
type follower struct {
	r     *Replicator
	space string
	// turn has a value while something is uploaded, or found out about the bucket. Whoever has it, has position and bucket.
	turn     chan struct{}
	bucket   *snapshot.Bucket
	position *position // nil if it is not known
	// based is when the first base of a stream was begun last since the store was opened, and pause is how long the next one has to wait.
	based time.Time
	pause time.Duration
	// received means that the last store was that of a process on another machine, and anew that the next stream begins whatever such a process has
	// had uploaded.
	received, anew bool
	// refused is the last stream with errStoreBehind since the store was opened.
	refused snapshot.Stream
	// fresh means that the store was opened since the directory of the space was looked at, and unverified that another process has opened it
	// since it was asked for the last row in the bucket.
	fresh, unverified atomic.Bool
	// restored means that the next first base needs no pause before it.
	restored atomic.Bool

	compactable atomic.Int64
	// asked has a value when the destination may have changed.
	asked chan struct{}
	// following has a value while another process is followed.
	following chan struct{}
	// opening is held while a store is opened or closed.
	opening sync.Mutex

	mu    sync.Mutex
	store source          // nil while it is closed
	ctx   context.Context //nolint:containedctx // ends when the store closes
	end   context.CancelFunc
	// copies ends before the store closes: a base that isn't complete then is made later.
	copies    context.Context //nolint:containedctx // likewise
	endCopies context.CancelFunc
	runs      sync.WaitGroup
	timer     *time.Timer
	armed     bool
	again     bool // there was a write during a run
	// takenAt is where another process has taken over the replica.
	takenAt *snapshot.Bucket
	// idle means that nothing is replicated, because there is no destination, or because of errTakenOver.
	idle bool
	// pending is when the oldest row was written that is not in the bucket; zero if there is none.
	pending time.Time
	retry   time.Duration

	state, published State
	publishedAt      time.Time
	publishing       *time.Timer // nil if none is set
}

func (f *follower) open() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.store != nil
}

// Opened implements [kine.Replica], as the following methods.
func (f *follower) Opened(s *kine.Store) { f.opened(local{s, f.r.config.Volume}) }

// opened begins to follow a store. One that is still followed is one that a process had before this one.
func (f *follower) opened(s source) {
	f.opening.Lock()
	defer f.opening.Unlock()
	if f.open() {
		f.shut(false)
	}
	wanted := f.r.config.Destination(f.space) != nil
	f.fresh.Store(true)
	f.unverified.Store(s.elsewhere())
	f.mu.Lock()
	defer f.mu.Unlock()
	f.store, f.idle, f.retry = s, false, 0
	if f.state.Reason == TakenOver {
		f.state, f.position = State{}, nil // nobody has the turn while the store is closed
	}
	if foreign := isForeign(s); f.received != foreign {
		if f.received = foreign; !foreign { // the process may have claimed any revision, and have sent any base
			f.state, f.position, f.anew = State{}, nil, true
		}
	}
	f.refused = snapshot.Stream{}
	if !s.elsewhere() { // which could open it again and again
		f.based = time.Time{}
	}
	if f.position == nil {
		f.compactable.Store(s.CompactRevision()) // until it is known what the bucket has
	}
	f.ctx, f.end = context.WithCancel(context.Background())
	f.copies, f.endCopies = context.WithCancel(f.ctx)
	if !wanted {
		f.stopLocked()
		return
	}
	f.noteLocked()
}

func (f *follower) Written() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.store != nil && !f.idle {
		f.noteLocked()
	}
}

// noteLocked notes a write.
func (f *follower) noteLocked() {
	if f.pending.IsZero() {
		f.pending = time.Now()
	}
	f.armLocked(f.r.config.Delay)
}

func (f *follower) Compactable() int64 {
	at := f.compactable.Load()
	if at == feed.NoLimit {
		return at
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.store != nil && f.state.Reason != StoreBehind {
		return feed.Compactable(at, f.store.Last(), f.store.CompactRevision())
	}
	return at
}

// Closing uploads what is left, and gives up after a while.
func (f *follower) Closing() {
	f.opening.Lock()
	defer f.opening.Unlock()
	f.mu.Lock()
	_, is := f.store.(local)
	f.mu.Unlock()
	if is {
		f.shut(true)
	}
}

// closed is Closing for a store of another process. Without flush, it uploads nothing.
func (f *follower) closed(s source, flush bool) {
	f.opening.Lock()
	defer f.opening.Unlock()
	f.mu.Lock()
	is := f.store == s
	f.mu.Unlock()
	if is {
		f.shut(flush)
	}
}

// shut ends the replication of a store that is open. The caller holds opening.
func (f *follower) shut(flush bool) {
	f.mu.Lock()
	f.endCopies()
	limit := closeTimeout
	if f.retry > 0 {
		limit = closeTimeoutFailed
	}
	ctx, cancel := context.WithTimeout(f.ctx, limit)
	wanted := flush && !f.idle && !f.pending.IsZero()
	f.mu.Unlock()
	defer cancel()
	if wanted {
		select {
		case f.turn <- struct{}{}:
			err := safego.Call("replicate a store", func() error { return f.flush(ctx, false) })
			f.note(err)
			f.leave()
		case <-ctx.Done():
		}
	}
	f.mu.Lock()
	f.end()
	f.idle = true
	if f.timer != nil {
		f.timer.Stop()
	}
	f.armed = false
	f.mu.Unlock()
	f.runs.Wait()
	f.mu.Lock()
	f.store, f.publishedAt = nil, time.Time{} // published at once: there may be nothing more to publish
	if f.state.Reason == UpToDate && !f.pending.IsZero() {
		f.state.Reason = Behind
	}
	f.mu.Unlock()
	f.publish()
}

// check continues if there is a destination now, and stops if there is none any more.
func (f *follower) check() {
	select {
	case f.asked <- struct{}{}:
	default:
	}
	wanted := f.r.config.Destination(f.space)
	f.mu.Lock()
	defer f.mu.Unlock()
	closed := f.store == nil || f.ctx.Err() != nil
	taken := f.state.Reason == TakenOver && f.takenAt == wanted
	if closed || taken {
		if wanted == nil {
			f.state, f.published, f.pending = State{}, State{}, time.Time{}
		}
		return
	}
	if f.idle != (wanted == nil) {
		f.idle = false
		f.noteLocked()
	}
}

func (f *follower) armLocked(after time.Duration) {
	if f.armed || f.ctx.Err() != nil {
		return
	}
	f.armed = true
	if f.timer == nil {
		f.timer = safego.AfterFunc(after, "replicate a store", f.fire)
		return
	}
	f.timer.Reset(after)
}

func (f *follower) fire() {
	f.mu.Lock()
	f.armed = false
	ctx, copies := f.ctx, f.copies
	if f.store == nil || f.idle || ctx.Err() != nil {
		f.mu.Unlock()
		return
	}
	f.runs.Add(1)
	f.mu.Unlock()
	defer f.runs.Done()
	select {
	case f.turn <- struct{}{}:
	default:
		f.mu.Lock()
		f.again = true
		f.mu.Unlock()
		return
	}
	err := safego.Call("replicate a store", func() error { return f.flush(ctx, true) })
	if copies.Err() == nil {
		f.note(err)
	}
	f.leave()
}

// leave ends a turn.
func (f *follower) leave() {
	<-f.turn
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.again || f.retry > 0 {
		f.again = false
		if f.retry > 0 && f.armed && f.store != nil && f.store.elsewhere() { // by a process that writes on, which is no reason to retry earlier
			f.timer.Stop()
			f.armed = false
		}
		f.armLocked(max(f.retry, f.r.config.Delay))
	}
}

// note records the result of an attempt.
func (f *follower) note(err error) {
	f.mu.Lock()
	switch {
	case err == nil:
		f.retry = 0
	case errors.Is(err, errPaused):
		f.retry = max(firstRetry, f.untilBase())
		f.state.Reason, f.state.Err = Behind, ""
	case errors.Is(err, errTakenOver):
		f.r.config.Logger.Error(err, "Stopped replicating a space", "space", f.space)
		f.idle, f.retry, f.takenAt = true, 0, f.bucket
		f.state.Reason, f.state.Err = TakenOver, err.Error()
	case errors.Is(err, errStoreBehind):
		if f.state.Reason != StoreBehind {
			f.r.config.Logger.Error(err, "Refused to replicate a space", "space", f.space)
		}
		f.retry = longestRetry // somebody may delete the replica
		f.state.Reason, f.state.Err = StoreBehind, err.Error()
	default:
		if f.retry == 0 {
			f.r.config.Logger.Error(err, "Could not replicate a space; Berth retries", "space", f.space)
		}
		f.retry = min(max(firstRetry, 2*f.retry), longestRetry)
		f.state.Reason, f.state.Err = Unreachable, err.Error()
		if errors.Is(err, errCopy) || errors.Is(err, errProcess) {
			f.state.Reason = Behind
		}
	}
	f.mu.Unlock()
	if err != nil {
		f.publish()
	}
}

// late reports whether a row has not been in the bucket for too long. The caller holds mu.
func (f *follower) late() bool { return !f.pending.IsZero() && time.Since(f.pending) > behindAfter }

// reached records what the bucket has at a time, and whether these are all rows that had been written then.
func (f *follower) reached(p *position, at time.Time, all bool) {
	f.compactable.Store(p.revision - 1)
	f.mu.Lock()
	f.state.Revision, f.state.Err = p.revision, ""
	if all {
		f.state.Time = at
	}
	f.state.Reason = UpToDate
	if f.store == nil || f.store.Last() <= p.revision {
		f.pending = time.Time{}
	} else if all {
		f.pending = at
	}
	if f.late() {
		f.state.Reason = Behind
	}
	f.mu.Unlock()
	f.publish()
}

// copying records that a base is made, until which nothing is up to date. What the bucket has of an earlier stream stays until then, and so does
// an error until an attempt succeeds.
func (f *follower) copying() {
	f.mu.Lock()
	if f.state.Err == "" {
		f.state.Reason = Behind
	}
	f.mu.Unlock()
	f.publish()
}

// stop records that there is nothing to do.
func (f *follower) stop() {
	f.mu.Lock()
	f.stopLocked()
	f.mu.Unlock()
	f.publish()
}

func (f *follower) stopLocked() {
	f.compactable.Store(feed.NoLimit)
	f.idle, f.pending, f.state, f.retry = true, time.Time{}, State{}, 0
}

// publish publishes the state, at once if it is another one or the store has been closed, and otherwise after a while, so that neither a busy space
// nor a process that says something else each time has a status written each second. How often a process opens a store is limited.
func (f *follower) publish() {
	f.mu.Lock()
	f.state.Since = f.pending
	if f.pending.IsZero() {
		f.state.Rows = 0
	} else if f.store != nil {
		f.state.Rows = max(0, f.store.Last()-f.state.Revision)
	}
	wait := publishEvery - time.Since(f.publishedAt)
	if f.state.Reason == f.published.Reason && (f.state.Err == "") == (f.published.Err == "") && wait > 0 && (f.store != nil || len(f.following) > 0) {
		if f.publishing == nil && f.state != f.published {
			f.publishing = safego.AfterFunc(wait, "publish the state of a replica", func() {
				f.mu.Lock()
				f.publishing = nil
				f.mu.Unlock()
				f.publish()
			})
		}
		f.mu.Unlock()
		return
	}
	if f.publishing != nil {
		f.publishing.Stop()
		f.publishing = nil
	}
	changed := f.state != f.published
	f.published, f.publishedAt = f.state, time.Now()
	f.mu.Unlock()
	if changed && f.r.config.Changed != nil {
		f.r.config.Changed(f.space)
	}
}
