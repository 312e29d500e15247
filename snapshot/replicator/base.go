// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package replicator

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/berth-dev/berth/internal/safego"
	"github.com/berth-dev/berth/snapshot"
)

// errCopy means that the store could not be copied on this machine, which says nothing about the bucket.
var errCopy = errors.New("copy the store")

// errPaused means that a first base was made a moment ago.
var errPaused = errors.New("the store was copied a moment ago")

// untilBase returns how long the first base of a stream has to wait. A store that is nearly full is compacted again and again, whatever the
// bucket has, and each of its streams begins with a copy of all of it.
func (f *follower) untilBase() time.Duration {
	if f.based.IsZero() {
		return 0
	}
	return f.pause - time.Since(f.based)
}

// firstBase makes the first base of the stream. Until it is complete, the bucket has an earlier stream, or nothing.
func (f *follower) firstBase(ctx context.Context, replica *snapshot.Replica) error {
	if f.restored.Swap(false) {
		f.based = time.Time{}
	}
	if f.untilBase() > 0 {
		return errPaused
	}
	began := time.Now()
	f.compactable.Store(f.store.Last() - 1) // the rows after the base have to be there when it is complete
	f.copying()
	p := f.position
	base, size, err := f.copy(ctx, replica, p, 0)
	if err != nil {
		return err
	}
	if f.based.IsZero() || began.Sub(f.based) > longestBasePause {
		f.pause = f.r.config.BasePause
	} else {
		f.pause = min(2*f.pause, longestBasePause)
	}
	f.based = began
	f.position = &position{stream: base.Stream, claim: p.claim, moves: p.moves, revision: base.Revision, row: base.Row, hasBase: true, base: size, identity: base.Identity}
	f.compactable.Store(base.Revision - 1)
	return nil
}

// rebase makes another base of the stream in the background, if there are many segments since the last one, or if the space has other keys.
// Meanwhile, there are further segments.
func (f *follower) rebase(ctx context.Context, replica *snapshot.Replica) {
	p := f.position
	due := p.segments >= f.r.config.MaxSegments || p.bytes > max(p.base, minSegmentBytes)
	if f.fresh.Load() { // keys change only by a restart
		identity, err := snapshot.IdentityDigest(f.r.config.SpaceDir(f.space))
		due = due || err == nil && identity != p.identity
		f.fresh.Store(err != nil || due)
	}
	if !due || p.copying || time.Since(p.rebased) < longestRetry {
		return
	}
	p.rebased, p.copying = time.Now(), true
	segments, bytes, at := p.segments, p.bytes, p.revision
	safego.Go(&f.runs, "make a base of a replica", func() {
		var base snapshot.Base
		var size int64
		_, err := f.claimed(ctx, replica, p.claim)
		if err == nil {
			base, size, err = f.copy(ctx, replica, p, at)
		}
		f.turn <- struct{}{} // whoever has it is about to leave, also when the store closes
		defer f.leave()
		p.copying = false
		if err == nil {
			p.failure = nil
			p.segments, p.bytes = p.segments-segments, p.bytes-bytes
			p.base, p.identity = size, base.Identity
			return
		}
		if errors.Is(err, errTakenOver) {
			f.note(err)
		} else if f.copies.Err() == nil { // the store is not being closed
			p.failure = err
			f.r.config.Logger.Error(err, "Could not make another base of a replica; Berth retries", "space", f.space)
		}
	}, nil)
}

// copy makes a base of the stream of p, and removes what it replaces. at is the revision up to which the stream had rows before. copy returns the
// size of the store, too. It reads nothing of p that changes. If another process has claimed a stream meanwhile, copy removes the base again, and
// nothing else.
func (f *follower) copy(ctx context.Context, replica *snapshot.Replica, p *position, at int64) (base snapshot.Base, size int64, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, baseTimeout, fmt.Errorf("not done within %s", baseTimeout))
	defer cancel()
	defer context.AfterFunc(f.copies, cancel)()
	if base, size, err = f.put(ctx, replica, p.stream, at); err != nil {
		return base, size, err
	}
	histories, err := f.claimed(ctx, replica, p.claim)
	if errors.Is(err, errTakenOver) {
		return base, size, errors.Join(err, replica.RemoveBase(ctx, base))
	}
	if err == nil {
		err = removeOld(ctx, replica, histories, base, p.claim)
	}
	if err != nil && ctx.Err() == nil {
		f.r.config.Logger.Error(err, "Could not remove what a newer base of a replica replaces; Berth retries with the next base", "space", f.space)
	}
	return base, size, nil
}

// put copies the store, and uploads the copy, when few others are copied. While another process sends its store, those of this process don't wait
// for it.
func (f *follower) put(ctx context.Context, replica *snapshot.Replica, s snapshot.Stream, at int64) (base snapshot.Base, size int64, err error) {
	turns := f.r.bases
	if f.store.elsewhere() {
		turns = f.r.received
	}
	end, err := take(ctx, turns)
	if err != nil {
		return base, size, err
	}
	defer func() { end() }()
	if err := os.MkdirAll(f.r.config.Scratch, 0o700); err != nil {
		return base, size, fmt.Errorf("%w: %w", errCopy, err)
	}
	scratch, err := os.MkdirTemp(f.r.config.Scratch, "base-*") // mode 0700
	if err != nil {
		return base, size, fmt.Errorf("%w: %w", errCopy, err)
	}
	defer os.RemoveAll(scratch)
	copied, free, err := f.store.copyTo(ctx, filepath.Join(scratch, "store.db"))
	if err != nil {
		return base, size, fmt.Errorf("%w: %w", errCopy, err)
	}
	defer func() { free() }()
	// The base replaces what the stream has up to its revision. If that were an earlier one, segments would be kept that count as replaced.
	if f.store.elsewhere() && copied.Revision < at {
		return base, size, fmt.Errorf("%w: %w: the copy ends with revision %d, before revision %d, which it has sent", errCopy, errProcess, copied.Revision, at)
	}
	info, err := os.Stat(copied.Path)
	if err != nil {
		return base, size, fmt.Errorf("%w: %w", errCopy, err)
	}
	size = info.Size()
	if f.store.elsewhere() {
		end()
		if end, err = take(ctx, f.r.bases); err != nil {
			end = func() {}
			return base, size, err
		}
		if free, err = f.r.config.Volume.Reserve(size, true); err != nil { // for the archive
			free = func() {}
			return base, size, fmt.Errorf("%w: %w", errCopy, err)
		}
	}
	if base, err = replica.PutBase(ctx, s, copied, f.r.config.SpaceDir(f.space), scratch, time.Now()); err != nil {
		return base, size, errors.Join(err, causeOf(ctx))
	}
	return base, size, nil
}

// removeOld removes what is older than a base of this process: earlier streams of the store, and what the base has of its own stream. Streams
// of another store of that name stay: they may be all that is left of it.
func removeOld(ctx context.Context, replica *snapshot.Replica, histories []*snapshot.History, base snapshot.Base, claim snapshot.Stream) error {
	var errs []error
	for _, h := range histories {
		switch {
		case h.Stream == base.Stream:
			for _, old := range h.Bases {
				if !old.Is(base) { // a process may send another store with the same revision
					errs = append(errs, replica.RemoveBase(ctx, old))
				}
			}
			for i, s := range h.Segments {
				if i+1 < len(h.Segments) && h.Segments[i+1].First <= base.Revision+1 {
					errs = append(errs, replica.RemoveRows(ctx, h.Stream, s.First))
				}
			}
		case h.Stream.Compare(claim) < 0:
			errs = append(errs, replica.Remove(ctx, h))
		}
	}
	return errors.Join(errs...)
}
