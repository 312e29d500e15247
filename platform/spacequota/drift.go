// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package spacequota

import (
	"context"
	"errors"
	"time"

	utilquota "k8s.io/apiserver/pkg/quota/v1"

	"github.com/berth-dev/berth/quota"
)

const (
	// driftTime is how long the host may count differently than a space: it follows changes with a delay.
	driftTime = 10 * time.Second
	// firstRecount and lastRecount limit the pause between two recounts that didn't help.
	firstRecount, lastRecount = 30 * time.Second, 10 * time.Minute
	// claimsTime is how long after a change of a share that has devices the host counts again.
	claimsTime = 5 * time.Second
)

// drift is of a space that the host counts differently than the space itself.
type drift struct {
	of      quota.Amounts
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

// Recount has the host count again if it has counted differently than a space for some time, in the same way. It is to be called again and
// again with what the host counts.
func (q *Quotas) Recount(ctx context.Context, space string, onHost quota.Amounts) error {
	if !q.recountDue(space, q.Drift(space, onHost)) {
		return nil
	}
	err := q.host.Recount(ctx, space)
	if errors.Is(err, quota.ErrConflict) || errors.Is(err, quota.ErrNotFound) { // the host counts again anyway, or nothing more
		return nil
	}
	return err
}

// recountClaims has the host count again the devices of a space's resource claims. When a share grows, the host counts, and just then a claim
// comes that waited for that. The host may miss it ([quota.Host.Recount]), and no drift shows that: only the host knows of which claims
// devices count. A claim that comes just when the host counts for another reason is missed until the next change of the share, or until the
// host's controller counts all quotas, every five minutes.
func (q *Quotas) recountClaims(ctx context.Context, space string) error {
	if !q.Serves(space) {
		return nil // it is another platform's by now
	}
	err := q.host.Recount(ctx, space)
	if errors.Is(err, quota.ErrConflict) { // something was admitted just now
		q.queue.AddAfter(task{recount, space}, claimsTime)
		return nil
	}
	if errors.Is(err, quota.ErrNotFound) {
		return nil
	}
	return err
}

// recountDue reports whether the host is to count again now.
func (q *Quotas) recountDue(space string, differs quota.Amounts) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(differs) == 0 {
		delete(q.drifts, space)
		return false
	}
	now := q.Clock.Now()
	one, known := q.drifts[space]
	if !known || !utilquota.Equals(one.of, differs) {
		one = drift{differs, now.Add(driftTime), firstRecount}
	}
	due := !now.Before(one.recount)
	if due {
		one.recount, one.pause = now.Add(one.pause), min(2*one.pause, lastRecount)
	}
	q.drifts[space] = one
	return due
}

// Forget forgets a space that isn't this platform's any more.
func (q *Quotas) Forget(space string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.drifts, space)
	delete(q.raised, space)
}
