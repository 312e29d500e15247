// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package spacequota

import (
	"context"
	"errors"
	"time"

	"github.com/berth-dev/berth/quota"
)

const (
	// driftTime is how long the host may count differently than a space: it follows changes with a delay.
	driftTime = 10 * time.Second
	// firstRecount and lastRecount limit the pause between two recounts that didn't help.
	firstRecount, lastRecount = 30 * time.Second, 10 * time.Minute
)

// drift is of a space that the host counts differently than the space itself.
type drift struct {
	recount time.Time // when the host is to count again
	pause   time.Duration
}

// Drift returns how much more the host counts of a space that runs in this process than its objects use ([quota.Gate.Drift]).
func (q *Quotas) Drift(space string, onHost quota.Amounts) quota.Amounts {
	if gate := q.gate(space); gate != nil {
		return gate.Drift(onHost)
	}
	return nil
}

// Recount has the host count again if it has counted differently than a space for some time. It is called with what the host counts, and
// returns when it is to be called again, although that doesn't change; 0 if it isn't.
func (q *Quotas) Recount(ctx context.Context, space string, onHost quota.Amounts) (again time.Duration, err error) {
	due, again := q.recountDue(space, len(q.Drift(space, onHost)) > 0)
	if !due {
		return again, nil
	}
	err = q.host.Recount(ctx, space)
	if errors.Is(err, quota.ErrConflict) || errors.Is(err, quota.ErrNotFound) { // the host counts again anyway, or nothing more
		err = nil
	}
	return again, err
}

// recountDue reports whether the host is to count again now, and when to ask again.
func (q *Quotas) recountDue(space string, differs bool) (due bool, again time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !differs {
		delete(q.drifts, space)
		return false, 0
	}
	now := q.Clock.Now()
	one, known := q.drifts[space]
	if !known {
		one = drift{now.Add(driftTime), firstRecount}
	}
	if due = !now.Before(one.recount); due {
		one = drift{now.Add(one.pause), min(2*one.pause, lastRecount)}
	}
	q.drifts[space] = one
	return due, one.recount.Sub(now)
}
