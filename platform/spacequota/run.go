// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package spacequota

import (
	"context"
	"errors"
	"sync"

	"github.com/berth-dev/berth/internal/safego"
	"github.com/berth-dev/berth/quota"
)

// Run does what [Quotas.Eased], [Quotas.Short], and [Quotas.Check] ask for, until ctx ends.
func (q *Quotas) Run(ctx context.Context) {
	var group sync.WaitGroup
	for range workers {
		safego.Go(&group, "give shares of quotas", func() {
			for q.next(ctx) {
			}
		}, nil)
	}
	if err := q.followLedgers(ctx); err != nil {
		q.Logger.Error(err, "Could not watch the quotas of tenants; changes take effect when a space starts")
	}
	<-ctx.Done()
	q.queue.ShutDown()
	group.Wait()
}

func (q *Quotas) next(ctx context.Context) bool {
	one, end := q.queue.Get()
	if end {
		return false
	}
	defer q.queue.Done(one)
	if err := safego.Call("give shares of quotas", func() error { return q.do(ctx, one) }); err != nil && ctx.Err() == nil {
		q.Logger.Error(err, "Could not change the share of a quota; Berth retries", "name", one.space)
		q.queue.AddRateLimited(one)
		return true
	}
	q.queue.Forget(one)
	return true
}

func (q *Quotas) do(ctx context.Context, one task) error {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	switch one.kind {
	case retry:
		q.again(one.space)
		return nil
	case trim:
		err := q.ledgers.Trim(ctx, one.space)
		if errors.Is(err, quota.ErrNotFound) {
			return nil
		}
		return err
	case finish:
		return q.finish(ctx, one.space)
	case place:
		if !q.Serves(one.space) {
			return nil
		}
		if err := q.Place(ctx, one.space); err != nil && !quota.IsExceeded(err) && !errors.Is(err, quota.ErrNotFound) {
			return err
		}
		return nil
	case recount:
		return q.recountClaims(ctx, one.space)
	default:
		return q.growShort(ctx, one.space)
	}
}

// again has a space that was refused try again.
func (q *Quotas) again(space string) {
	q.mu.Lock()
	one, is := q.hungry[space]
	if is && q.Clock.Since(one.since) > 2*lastLook { // it doesn't want it any more
		delete(q.hungry, space)
		is = false
	}
	if is {
		one.tried = q.Clock.Now()
		one.look = min(2*one.look, lastLook)
	}
	gate := q.gates[space]
	short := len(q.short[space].of) > 0
	q.mu.Unlock()
	if !is {
		return
	}
	if gate != nil {
		gate.Freed()
	}
	q.Retry(space)
	if short {
		q.queue.Add(task{grow, space})
	}
}

// finish does what is missing of shares of this platform's spaces that somebody else has begun to lower.
func (q *Quotas) finish(ctx context.Context, tenant string) error {
	spaces, err := q.ledgers.Lowering(ctx, tenant)
	if errors.Is(err, quota.ErrNotFound) {
		return nil
	}
	for _, space := range spaces {
		if q.Serves(space) {
			err = errors.Join(err, q.Check(ctx, space))
		}
	}
	return err
}
