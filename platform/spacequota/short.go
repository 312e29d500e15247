// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package spacequota

import (
	"context"
	"errors"
	"maps"

	utilquota "k8s.io/apiserver/pkg/quota/v1"

	"github.com/berth-dev/berth/quota"
)

// Short is told what the host rejected of a space, because its quota there allows no more. It does not block.
func (q *Quotas) Short(space string, requested quota.Amounts) {
	if tenant, _ := q.Of(space); tenant == "" {
		return
	}
	if gate := q.gate(space); gate != nil {
		gate.Forget() // the share may have been lowered by another platform
	}
	q.mu.Lock()
	if short := utilquota.Max(q.short[space].of, requested); len(short) <= maxShort {
		q.short[space] = shortage{short, q.Clock.Now()}
	}
	q.mu.Unlock()
	q.queue.AddAfter(task{grow, space}, retryPause/10)
}

// growShort asks for what the host rejected. What a quota refuses doesn't keep the space from the rest, and is asked for again when
// something is freed.
func (q *Quotas) growShort(ctx context.Context, space string) error {
	q.mu.Lock()
	short := q.short[space]
	q.mu.Unlock()
	tenant, ceiling := q.Of(space)
	more, refused := maps.Clone(short.of), quota.Amounts{}
	for len(more) > 0 && tenant != "" && q.Serves(space) {
		_, err := q.ledgers.Grow(ctx, quota.Request{Space: space, Tenant: tenant, Ceiling: ceiling, More: more, OnHost: true})
		q.note(space, tenant, err)
		exceeded := (*quota.Exceeded)(nil)
		if !errors.As(err, &exceeded) {
			if err != nil && !errors.Is(err, quota.ErrNotFound) {
				return err
			}
			break
		}
		before := len(more)
		for name := range exceeded.Limited {
			if amount, asked := more[name]; asked {
				refused[name] = amount
			}
			delete(more, name)
		}
		if len(more) == before {
			break
		}
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.short[space].at != short.at: // there is more
	case len(refused) > 0 && q.Clock.Since(short.at) < shortTime:
		q.short[space] = shortage{refused, short.at}
	default:
		delete(q.short, space)
	}
	return nil
}
