// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package replicator

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/time/rate"

	"github.com/berth-dev/berth/snapshot"
	"github.com/berth-dev/berth/snapshot/feed"
	"github.com/berth-dev/berth/snapshot/segment"
)

// linkRetry is the pause after a request to a process that has failed.
const linkRetry = 2 * time.Second

// link follows the store of a space in its process.
type link struct {
	f       *follower
	from    Remote
	foreign bool
	opens   *rate.Limiter // limits how often the store is opened
	rows    *rate.Limiter // limits the bytes of rows

	seen    feed.State
	source  *remote // nil while the store is closed
	opened  bool    // it has been open
	answers bool    // the last request was answered
	looked  bool    // the bucket was asked what it has of the store, which has been closed since the start
}

// Follow replicates the store of a space that another process has open, until ctx ends. foreign means that the process is on another machine, so
// that nothing that it sends is opened here. While the space has no destination, the process isn't asked anything. Only one process of a space
// is followed at a time: Follow waits until that before it isn't followed any more.
func (r *Replicator) Follow(ctx context.Context, space string, from Remote, foreign bool) {
	f := r.follower(space, true)
	select {
	case f.following <- struct{}{}:
		defer func() {
			<-f.following
			f.publish()
		}()
	case <-ctx.Done():
		return
	}
	l := &link{
		f: f, from: from, foreign: foreign, answers: true,
		opens: rate.NewLimiter(rate.Every(openEvery), openings), rows: rate.NewLimiter(rowsPerSecond, segment.MaxBytes),
	}
	defer l.close(false)
	for ctx.Err() == nil {
		if r.config.Destination(space) == nil {
			l.close(false)
			l.seen, l.opened = feed.State{}, false
			select {
			case <-l.f.asked:
			case <-ctx.Done():
			}
			continue
		}
		select {
		case <-time.After(l.next(ctx)):
		case <-ctx.Done():
		}
	}
}

// next asks the process for news, and returns the pause before the next request.
func (l *link) next(ctx context.Context) (pause time.Duration) {
	keep := int64(-1) // until the store was opened, it isn't known what the bucket has of it
	if l.opened {
		keep = l.f.Compactable()
	}
	state, err := l.from.Watch(ctx, feed.Seen{State: l.seen, Has: l.f.uploaded(), Keep: keep})
	if ctx.Err() != nil {
		return 0
	}
	if err != nil {
		l.answers = false
		l.f.unknown(fmt.Errorf("%w: %w", errProcess, err))
		return linkRetry
	}
	before, answered := l.seen, l.answers
	l.seen, l.answers = state, true
	if l.source != nil && l.source.opening != state.Opening {
		l.close(false)
	}
	switch {
	case state.Opening == 0:
		if state.Last != 0 && !l.looked && !l.opened {
			if err := l.opens.Wait(ctx); err != nil {
				return 0
			}
			l.looked = l.f.look(ctx, state.Last)
		}
		l.f.asleep(state.Last)
	case l.source != nil:
		l.source.set(state)
		if state.Last > before.Last || !answered {
			l.f.Written()
		}
	case !before.Closing || before.Opening != state.Opening:
		if err := l.opens.Wait(ctx); err != nil {
			return 0
		}
		l.source = &remote{from: l.from, codec: l.f.r.codec, opening: state.Opening, foreign: l.foreign, limit: l.rows, state: state}
		l.f.opened(l.source)
		l.opened = true
	}
	if state.Closing && l.source != nil {
		l.close(true) // and says so with the next request
		return 0
	}
	// Rows that are written during the pause are uploaded with those before them.
	return l.f.r.config.Delay * 2 / 5
}

func (l *link) close(flush bool) {
	if l.source != nil {
		l.f.closed(l.source, flush)
		l.source = nil
	}
}

// uploaded returns the revision of the last row in the bucket; 0 if it isn't known.
func (f *follower) uploaded() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.state.Revision
}

// halted reports whether nothing is replicated. The caller holds mu.
func (f *follower) halted() bool { return f.state.Reason == TakenOver || f.state.Reason == StoreBehind }

// behindLocked records that rows have been missing for too long, if they have, also if nothing is known of the replica since the last start. The
// caller holds mu.
func (f *follower) behindLocked(err string) {
	if (f.state.Reason == UpToDate || f.state.Reason == "") && f.late() {
		f.state.Reason, f.state.Err = Behind, err
	}
}

// unknown records that the process doesn't say what it writes.
func (f *follower) unknown(err error) {
	f.mu.Lock()
	if f.halted() {
		f.mu.Unlock()
		return
	}
	if f.pending.IsZero() {
		f.pending = time.Now()
	}
	f.behindLocked(err.Error())
	f.mu.Unlock()
	f.publish()
}

// asleep records that the process has closed the store after a revision; 0 if it doesn't know which. Then the replica is as it was.
func (f *follower) asleep(last int64) {
	f.mu.Lock()
	if f.halted() || f.store != nil {
		f.mu.Unlock()
		return
	}
	switch {
	case last > f.state.Revision && f.pending.IsZero():
		f.pending = time.Now()
	case last != 0 && last <= f.state.Revision:
		f.pending = time.Time{}
		if f.state.Reason == Behind {
			f.state.Reason, f.state.Err = UpToDate, ""
		}
	}
	f.behindLocked("")
	f.mu.Unlock()
	f.publish()
}

// look asks the bucket whether it has all rows of a store that is closed after a revision, if nothing is known of the replica. It reports whether
// there was an answer.
func (f *follower) look(ctx context.Context, last int64) bool {
	bucket := f.r.config.Destination(f.space)
	if bucket == nil || f.uploaded() != 0 {
		return true
	}
	end, err := take(ctx, f.r.uploads)
	if err != nil {
		return false
	}
	defer end()
	ctx, cancel := context.WithTimeout(ctx, locateTimeout)
	defer cancel()
	has, err := f.lastIn(ctx, bucket.Replica(f.space))
	if err != nil || has == 0 || has > last {
		return err == nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.store == nil && !f.halted() {
		f.state.Reason, f.state.Revision = Behind, has // which asleep changes, if that is all
		if has == last {
			f.state.Time = time.Now()
		}
	}
	return true
}

// lastIn returns the revision of the last row that the bucket has of the store; 0 if that isn't known. A store that has moved since has the same rows.
func (f *follower) lastIn(ctx context.Context, replica *snapshot.Replica) (int64, error) {
	id, err := f.r.config.StoreID(f.space)
	if err != nil {
		return 0, err
	}
	moves, err := f.r.config.Moves(f.space)
	if err != nil {
		return 0, err
	}
	histories, err := historiesOf(ctx, replica, id)
	if err != nil {
		return 0, err
	}
	h := latestBased(histories)
	if h == nil || h != latest(histories) || h.Stream.Moves > moves {
		return 0, nil
	}
	if len(h.Segments) == 0 {
		return h.Base().Revision, nil
	}
	_, row, err := f.lastRow(ctx, replica, h.Stream, h.Segments[len(h.Segments)-1].First)
	if errors.Is(err, errTakenOver) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	return max(row.ID, h.Base().Revision), nil
}
