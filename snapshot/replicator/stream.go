// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package replicator

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/berth-dev/berth/snapshot"
	"github.com/berth-dev/berth/snapshot/segment"
)

// errContended means that other processes claim streams at the same time again and again.
var errContended = errors.New("other processes begin to replicate the space")

// locate claims the last stream of the store, and returns its end, if the store has its last row. Otherwise, it claims another stream.
func (f *follower) locate(ctx context.Context, replica *snapshot.Replica) (*position, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, locateTimeout, fmt.Errorf("not done within %s", locateTimeout))
	defer cancel()
	p, err := f.claimLast(ctx, replica)
	if err != nil {
		return nil, errors.Join(err, causeOf(ctx))
	}
	return p, nil
}

func (f *follower) claimLast(ctx context.Context, replica *snapshot.Replica) (*position, error) {
	id, err := f.r.config.StoreID(f.space)
	if err != nil {
		return nil, err
	}
	moved, err := f.r.config.Moves(f.space)
	if err != nil {
		return nil, err
	}
	moves := moved
	histories, err := historiesOf(ctx, replica, id)
	for range 3 {
		if err != nil {
			return nil, err
		}
		p, claim := &position{}, snapshot.Begins
		end, newest := latest(histories), snapshot.Stream{Store: id, Moves: moves}
		if n := len(histories); n > 0 {
			newest = histories[n-1].Stream
		}
		if newest.Moves > moves {
			// The space moves no more, or counts its moves anew: its object was created again, or it was restored from a snapshot.
			if counts, err := f.counts(ctx); err != nil || !counts {
				return nil, cmp.Or(err, errTakenOver)
			}
			moves = newest.Moves
		}
		if based := latestBased(histories); based != nil && based.Stream.Moves == moves && !f.anew {
			if p, err = f.endOf(ctx, replica, based); errors.Is(err, errStoreBehind) || based.Stream == f.refused {
				f.refused = based.Stream // and stays so, whatever the store gets
				return nil, errStoreBehind
			}
			if err != nil {
				return nil, err
			}
			if based != end { // a process has begun another one, and may replace this one at any moment
				p = &position{}
			}
			if p.hasBase {
				claim = snapshot.Continues
			}
		}
		p.moves = moved
		p.claim = snapshot.Stream{Store: id, Moves: moves, Seq: newest.Seq + 1, Run: newRun()}
		if !p.hasBase {
			p.stream = p.claim
		}
		if err := replica.Claim(ctx, p.claim, claim); err != nil {
			return nil, err
		}
		// Another process may have claimed one at the same time, or have begun the one that p is to continue after.
		if histories, err = historiesOf(ctx, replica, id); err != nil {
			return nil, err
		}
		if now := latest(histories); histories[len(histories)-1].Stream == p.claim && now != nil && now.Stream == p.stream {
			removeClaims(ctx, replica, histories)
			f.anew = false
			return p, nil
		}
	}
	return nil, errContended
}

func (f *follower) counts(ctx context.Context) (bool, error) {
	if f.r.config.Counts == nil {
		return false, nil
	}
	return f.r.config.Counts(ctx, f.space)
}

// endOf returns the end of a stream with a base; a position without one if the store doesn't have its last row any more, or if another machine sent
// the stream and doesn't have the store any more: then the base may be anything. It fails with errStoreBehind if the store never had the row.
func (f *follower) endOf(ctx context.Context, replica *snapshot.Replica, h *snapshot.History) (*position, error) {
	base := h.Base()
	if base.Elsewhere && !isForeign(f.store) {
		return &position{}, nil
	}
	end := &position{stream: h.Stream, revision: base.Revision, row: base.Row, hasBase: true, base: base.Bytes, identity: base.Identity}
	for _, s := range h.Segments {
		end.segments++
		end.bytes += s.Bytes // at least: how large the rows are isn't known
	}
	if n := len(h.Segments); n > 0 {
		first := h.Segments[n-1].First
		header, row, err := f.lastRow(ctx, replica, h.Stream, first)
		if err == nil && header.Elsewhere && !isForeign(f.store) {
			return &position{}, nil
		}
		if errors.Is(err, errTakenOver) && f.store.Last() >= first { // it is damaged, and the store has what is in it
			return &position{}, nil
		}
		if errors.Is(err, errTakenOver) {
			err = errStoreBehind
		}
		if err != nil {
			return nil, err
		}
		if first > base.Revision {
			end.revision, end.row = row.ID, segment.Digest(row)
		}
	}
	if has, err := f.has(ctx, end.revision, end.row); err != nil || !has { // if not, it was compacted, or the store was restored
		return &position{}, err
	}
	return end, nil
}

// historiesOf returns the streams of a store by age. The last one is claimed by the process that counts.
func historiesOf(ctx context.Context, replica *snapshot.Replica, id string) (of []*snapshot.History, err error) {
	histories, err := replica.Histories(ctx)
	for _, h := range histories {
		if h.Stream.Store == id {
			of = append(of, h)
		}
	}
	return of, err
}

// latest returns the last stream that is more than the claim of a process that continues an earlier one; nil if there is none.
func latest(histories []*snapshot.History) (last *snapshot.History) {
	for _, h := range histories {
		if h.Claim != snapshot.Continues {
			last = h
		}
	}
	return last
}

// latestBased returns the last stream from which a space can be restored; nil if there is none.
func latestBased(histories []*snapshot.History) (last *snapshot.History) {
	for _, h := range histories {
		if h.Base() != nil {
			last = h
		}
	}
	return last
}

// removeClaims removes the claims of earlier processes, if nothing else is there of their streams. What stays is removed with the next base.
func removeClaims(ctx context.Context, replica *snapshot.Replica, histories []*snapshot.History) {
	for _, h := range histories[:len(histories)-1] {
		if h.Claim == snapshot.Continues || h.Base() == nil && len(h.Segments) == 0 {
			_ = replica.Remove(ctx, h)
		}
	}
}

// branch claims another stream, because the store doesn't have the rows after the last one in the bucket. Unlike [follower.locate], it does so
// only if no other process has opened the store since this one did.
func (f *follower) branch(ctx context.Context, replica *snapshot.Replica) error {
	if _, err := f.claimed(ctx, replica, f.position.claim); err != nil {
		return err
	}
	before, stream := f.position.claim, f.position.claim
	stream.Seq, stream.Run = stream.Seq+1, newRun()
	if err := replica.Claim(ctx, stream, snapshot.Begins); err != nil {
		return err
	}
	histories, err := historiesOf(ctx, replica, stream.Store)
	if err != nil {
		return err
	}
	for _, h := range histories {
		if h.Stream.Compare(before) > 0 && h.Stream != stream {
			return errTakenOver
		}
	}
	f.position = &position{stream: stream, claim: stream, moves: f.position.moves}
	return nil
}

// claimed returns the streams of the store by age. It fails if another process has claimed one after this process did.
func (f *follower) claimed(ctx context.Context, replica *snapshot.Replica, claim snapshot.Stream) ([]*snapshot.History, error) {
	histories, err := historiesOf(ctx, replica, claim.Store)
	if n := len(histories); err == nil && n > 0 && histories[n-1].Stream.Compare(claim) > 0 {
		err = errTakenOver
	}
	return histories, err
}

func newRun() string {
	run := make([]byte, 4)
	_, _ = rand.Read(run) // never fails
	return hex.EncodeToString(run)
}
