// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package spaceprocess

import (
	"context"
	"errors"
	"net/http"
	"sync"

	"k8s.io/utils/clock"

	"github.com/berth-dev/berth/internal/safego"
	"github.com/berth-dev/berth/quota"
	"github.com/berth-dev/berth/shard/dedicated"
)

// quotaAsker asks the platform for larger shares of the tenant's quota. It is safe for concurrent use.
type quotaAsker struct {
	retry     func() // tries again what was refused
	asks      sync.WaitGroup
	questions questions[quota.Wanted, quota.Answer]

	mu       sync.Mutex
	gate     *quota.Gate
	rejected quota.Amounts // what the host rejected last, until the quota allows it
	shortNow bool          // a question about that is open
}

// newGate returns the gate of the space for its next start.
func (q *quotaAsker) newGate() *quota.Gate {
	gate := quota.NewGate(func(ctx context.Context, has, more quota.Amounts) error {
		return q.ask(ctx, quota.Wanted{Has: quota.Said(has), More: quota.Said(more)})
	}, clock.RealClock{})
	q.mu.Lock()
	defer q.mu.Unlock()
	q.gate = gate
	return gate
}

// short asks for what the host rejected. It does not block.
func (q *quotaAsker) short(requested quota.Amounts) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.gate == nil {
		return
	}
	q.gate.Forget() // its share was lowered
	if q.rejected = requested; q.shortNow {
		return // what is short is rejected again
	}
	q.shortNow = true
	safego.Go(&q.asks, "ask for quota", func() {
		err := q.ask(context.Background(), quota.Wanted{More: quota.Said(requested), OnHost: true})
		q.mu.Lock()
		defer q.mu.Unlock()
		if q.shortNow = false; err == nil {
			q.rejected = nil
		}
	}, nil)
}

func (q *quotaAsker) ask(ctx context.Context, wanted quota.Wanted) error {
	answer, err := q.questions.ask(ctx, func(id uint64) quota.Wanted {
		wanted.ID = id
		return wanted
	})
	switch {
	case err != nil:
		return err
	case answer.Refused != nil:
		return answer.Refused
	case answer.Failed != "":
		return errors.New(answer.Failed)
	}
	return nil
}

func (q *quotaAsker) answered(answer quota.Answer) {
	q.mu.Lock()
	gate, rejected := q.gate, q.rejected
	q.mu.Unlock()
	if answer.ID == 0 {
		if gate != nil {
			gate.Freed()
			q.retry()
		}
		if rejected != nil {
			q.short(rejected)
		}
		return
	}
	if gate != nil && answer.Hard != nil {
		gate.Raise(answer.Hard)
	}
	q.questions.answer(answer.ID, answer)
}

// serve adds the routes for the share of the quota.
func (q *quotaAsker) serve(mux *http.ServeMux) {
	q.questions.serve(mux, dedicated.QuotaPath, q.answered)
}
