// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package spacequota

import (
	"context"
	"errors"
	"maps"
	"slices"

	utilquota "k8s.io/apiserver/pkg/quota/v1"

	"github.com/berth-dev/berth/quota"
)

// Gate returns the gate of a space that starts; nil if the space has no tenant.
func (q *Quotas) Gate(space string) *quota.Gate {
	if tenant, _ := q.Of(space); tenant == "" {
		q.setGate(space, nil)
		return nil
	}
	gate := quota.NewGate(func(ctx context.Context, has, more quota.Amounts) error { return q.ask(ctx, space, has, more) }, q.Clock)
	q.setGate(space, gate)
	return gate
}

func (q *Quotas) setGate(space string, gate *quota.Gate) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.gates[space] = gate; gate == nil {
		delete(q.gates, space)
	}
}

func (q *Quotas) gate(space string) *quota.Gate {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.gates[space]
}

// ask is the [quota.Ask] of a space.
func (q *Quotas) ask(ctx context.Context, space string, has, more quota.Amounts) error {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	tenant, ceiling := q.Of(space)
	_, err := q.ledgers.Grow(ctx, quota.Request{Space: space, Tenant: tenant, Ceiling: ceiling, Has: has, More: more, OnHost: asksForClaims(more)})
	q.note(space, tenant, err)
	return err
}

// asksForClaims reports whether some of it are devices of resource claims, of which the host counts more than gates do.
func asksForClaims(more quota.Amounts) bool {
	return slices.ContainsFunc(slices.Collect(maps.Keys(more)), quota.CountsClaims)
}

// Lower implements [quota.Gates].
func (q *Quotas) Lower(space string, to quota.Amounts) quota.Amounts {
	if gate := q.gate(space); gate != nil {
		return gate.Lower(to)
	}
	return nil
}

// Raise implements [quota.Gates].
func (q *Quotas) Raise(space string, hard quota.Amounts) {
	if gate := q.gate(space); gate != nil {
		gate.Raise(hard)
	}
	if !asksForClaims(hard) {
		return
	}
	q.mu.Lock()
	changed := !utilquota.Equals(q.raised[space], hard)
	q.raised[space] = maps.Clone(hard)
	q.mu.Unlock()
	if changed {
		q.queue.AddAfter(task{recount, space}, claimsTime)
	}
}

// Answer answers the process of a dedicated space. Somebody may have taken over the process: it gets no more than the tenant could have.
func (q *Quotas) Answer(ctx context.Context, space string, wanted quota.Wanted) quota.Answer {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	tenant, ceiling := q.Of(space)
	if tenant == "" {
		return quota.Answer{ID: wanted.ID, Failed: "the space has no tenant"}
	}
	hard, err := q.ledgers.Grow(ctx, quota.Request{
		Space: space, Tenant: tenant, Ceiling: ceiling, Has: wanted.Has.Amounts(), More: wanted.More.Amounts(), OnHost: wanted.OnHost,
	})
	q.note(space, tenant, err)
	answer := quota.Answer{ID: wanted.ID, Hard: hard}
	if exceeded := (*quota.Exceeded)(nil); errors.As(err, &exceeded) {
		answer.Refused = exceeded
	} else if err != nil {
		q.Logger.Error(err, "Could not give a dedicated space a larger share of its quota", "space", space)
		answer.Failed = "the host doesn't answer; try again"
	}
	return answer
}
