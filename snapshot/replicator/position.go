// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package replicator

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/berth-dev/berth/kine"
	"github.com/berth-dev/berth/kine/sqlite"
	"github.com/berth-dev/berth/snapshot"
	"github.com/berth-dev/berth/snapshot/segment"
)

// position is how far the stream of a follower is in the bucket. Whoever has the follower's turn may use it.
type position struct {
	stream snapshot.Stream
	moves  int64 // how often the directory of the space had moved
	// claim is with what this process claimed the stream: the stream itself, if this process began it, or a later one.
	claim    snapshot.Stream
	revision int64
	row      string // the digest of the row with that revision
	hasBase  bool
	// segments are those after the last base, and bytes is the size of their rows, without compression, which a restore has to append. base is the
	// size of the store, and identity that of the space in the base.
	segments    int
	bytes, base int64
	identity    string
	// rebased is when a base was begun that is to follow the last one; copying says that it isn't complete.
	rebased time.Time
	copying bool
	// failure is why no base could follow the last one; nil if none has failed.
	failure error
}

// overdue reports whether there are far more rows than lead to another base. A process that sends rows, and no copy, would fill the bucket, and
// so would a store that can't be copied, for example because the volume is full.
func (p *position) overdue(maxSegments int) bool {
	return p.segments > 10*maxSegments || p.bytes > 4*p.base+overdueBytes
}

// flush uploads what is not in the bucket. If mayCopy is false, it makes no base.
func (f *follower) flush(ctx context.Context, mayCopy bool) error {
	bucket := f.r.config.Destination(f.space)
	if bucket == nil {
		f.bucket, f.position = nil, nil
		f.stop()
		return nil
	}
	if f.bucket != bucket {
		f.bucket, f.position = bucket, nil
	}
	replica := bucket.Replica(f.space)
	if f.position != nil && f.fresh.Load() {
		moves, err := f.r.config.Moves(f.space)
		id, idErr := f.r.config.StoreID(f.space)
		if err != nil || idErr != nil || moves != f.position.moves || id != f.position.stream.Store {
			f.position = nil // the space was elsewhere since, or is another one
		}
	}
	if f.position != nil && f.unverified.Load() {
		has := false // without a base, an earlier stream is what the bucket has
		if f.position.hasBase {
			var err error
			if has, err = f.has(ctx, f.position.revision, f.position.row); err != nil && !errors.Is(err, errStoreBehind) {
				return err
			}
		}
		if !has {
			f.position = nil // it was restored, or is another one
		}
	}
	f.unverified.Store(false)
	if f.position == nil {
		found, err := f.locate(ctx, replica)
		if err != nil {
			return err
		}
		f.position = found
		if !found.hasBase { // what is known of the replica is that of another store, or of an earlier process
			f.mu.Lock()
			f.state = State{}
			f.mu.Unlock()
		}
	}
	// What is written during the uploads is for the next flush. Otherwise, writes that are faster than uploads would make this one endless.
	for target := f.store.Last(); ; {
		if !f.position.hasBase {
			if !mayCopy {
				return nil
			}
			if err := f.firstBase(ctx, replica); err != nil {
				return err
			}
		}
		if failure := f.position.failure; (f.store.elsewhere() || failure != nil) && f.position.overdue(f.r.config.MaxSegments) {
			if mayCopy {
				f.rebase(ctx, replica)
			}
			if f.store.elsewhere() {
				failure = errOverdue
			}
			return failure
		}
		done, err := f.next(ctx, replica, target)
		// Rows that aren't in the store any more, or those of a process that doesn't have the store any more.
		if errors.Is(err, kine.ErrRowsGone) || errors.Is(err, errTakenOver) {
			if err = f.branch(ctx, replica); err == nil {
				continue
			}
		}
		if err != nil {
			return err
		}
		if mayCopy {
			f.rebase(ctx, replica)
		}
		if done {
			return nil
		}
	}
}

// next uploads a segment, and reports whether the bucket has all rows up to that with the revision target.
func (f *follower) next(ctx context.Context, replica *snapshot.Replica, target int64) (done bool, err error) {
	p, at, last := f.position, time.Now(), f.store.Last()
	var rows []sqlite.Row
	if f.store.elsewhere() { // which may take its time, and has no turn meanwhile
		if rows, err = f.store.RowsAfter(ctx, p.revision, segment.RowBytes); err != nil {
			return false, err
		}
	}
	end, err := take(ctx, f.r.uploads)
	if err != nil {
		return false, err
	}
	defer end()
	if !f.store.elsewhere() {
		if rows, err = f.store.RowsAfter(ctx, p.revision, segment.RowBytes); err != nil {
			return false, err
		}
	}
	if len(rows) == 0 {
		f.reached(p, at, true)
		return true, nil
	}
	header := segment.Header{Space: f.space, Stream: p.stream.String(), Previous: p.row, Time: at.UTC(), Elsewhere: isForeign(f.store)}
	data, err := f.r.codec.Encode(header, rows)
	if err != nil {
		return false, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, uploadTimeout, fmt.Errorf("not done within %s", uploadTimeout))
	defer cancel()
	newest := &rows[len(rows)-1]
	switch err := replica.PutRows(ctx, p.stream, rows[0].ID, data); {
	case errors.Is(err, snapshot.ErrReplicated):
		// An earlier attempt may have succeeded without a response. Then these are rows of this store.
		if newest, err = f.same(ctx, replica, p.stream, rows[0].ID); err != nil {
			return false, err
		}
	case err != nil:
		return false, errors.Join(err, causeOf(ctx))
	}
	p.revision, p.row = newest.ID, segment.Digest(newest)
	p.segments++
	for i := range rows {
		p.bytes += int64(rows[i].Size())
	}
	f.reached(p, at, p.revision >= last)
	return p.revision >= target, nil
}

func causeOf(ctx context.Context) error {
	if ctx.Err() == nil {
		return nil
	}
	return context.Cause(ctx)
}

// same returns the last row of a segment in the bucket, which must be a row of the store: if it isn't, same fails with errTakenOver.
func (f *follower) same(ctx context.Context, replica *snapshot.Replica, s snapshot.Stream, first int64) (*sqlite.Row, error) {
	_, last, err := f.lastRow(ctx, replica, s, first)
	if err != nil {
		return nil, err
	}
	has, err := f.has(ctx, last.ID, segment.Digest(last))
	if err == nil && !has || errors.Is(err, errStoreBehind) {
		err = errTakenOver
	}
	return last, err
}

// lastRow returns the last row of a segment in the bucket, and its header. It fails with errTakenOver if it is not one that this process can have
// made.
func (f *follower) lastRow(ctx context.Context, replica *snapshot.Replica, s snapshot.Stream, first int64) (h segment.Header, _ *sqlite.Row, err error) {
	data, err := replica.Rows(ctx, s, first)
	if err != nil {
		return h, nil, err
	}
	h, rows, err := f.r.codec.Decode(data)
	if err != nil || h.Stream != s.String() || h.First != first {
		return h, nil, fmt.Errorf("read the last segment of the replica, from revision %d: %w", first, errors.Join(err, errTakenOver))
	}
	return h, &rows[len(rows)-1], nil
}

// has reports whether the store has a row. It fails with errStoreBehind if the store doesn't have it, and can't have had it: the row was not
// compacted.
func (f *follower) has(ctx context.Context, revision int64, digest string) (bool, error) {
	rows, err := f.store.RowsAfter(ctx, revision-1, 1)
	if err != nil && !errors.Is(err, kine.ErrRowsGone) {
		return false, err
	}
	if err == nil && len(rows) > 0 && segment.Digest(&rows[0]) == digest {
		return true, nil
	}
	if errors.Is(err, kine.ErrRowsGone) && f.store.elsewhere() { // what the process has said of compactions before may be old
		return false, nil
	}
	if f.store.CompactRevision() < revision {
		return false, errStoreBehind
	}
	return false, nil
}
