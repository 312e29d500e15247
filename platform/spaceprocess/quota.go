// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package spaceprocess

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/clock"

	"github.com/berth-dev/berth/control"
	"github.com/berth-dev/berth/internal/safego"
	"github.com/berth-dev/berth/quota"
	"github.com/berth-dev/berth/shard/dedicated"
)

const (
	// answerWithin is how long a request in the space waits for the platform.
	answerWithin = 10 * time.Second
	// maxQuestion limits an answer about a quota, in bytes.
	maxQuestion = 256 << 10
)

// quotaAsker asks the platform for larger shares of the tenant's quota. The platform connects to this process, and not the other way
// round, so a question waits until the platform asks for one. It is safe for concurrent use.
type quotaAsker struct {
	retry func() // tries again what was refused
	asks  sync.WaitGroup

	mu       sync.Mutex
	gate     *quota.Gate
	last     uint64
	open     []question
	changed  chan struct{} // closed when there is another question
	rejected quota.Amounts // what the host rejected last, until the quota allows it
	shortNow bool          // a question about that is open
}

type question struct {
	quota.Wanted
	answer chan quota.Answer
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
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	answered := make(chan quota.Answer, 1)
	q.mu.Lock()
	q.last++
	wanted.ID = q.last
	q.open = append(q.open, question{wanted, answered})
	if q.changed != nil {
		close(q.changed)
		q.changed = nil
	}
	q.mu.Unlock()
	select {
	case answer := <-answered:
		switch {
		case answer.Refused != nil:
			return answer.Refused
		case answer.Failed != "":
			return errors.New(answer.Failed)
		}
		return nil
	case <-ctx.Done():
		q.take(wanted.ID)
		return errors.New("the platform doesn't answer; it may be restarting")
	}
}

// take removes a question.
func (q *quotaAsker) take(id uint64) (found *question) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for i := range q.open {
		if q.open[i].ID == id {
			found = &q.open[i]
			q.open = append(append([]question(nil), q.open[:i]...), q.open[i+1:]...)
			return found
		}
	}
	return nil
}

// next waits for a question.
func (q *quotaAsker) next(ctx context.Context) quota.Wanted {
	ctx, cancel := context.WithTimeout(ctx, dedicated.QuotaWait)
	defer cancel()
	for {
		q.mu.Lock()
		if len(q.open) > 0 {
			defer q.mu.Unlock()
			return q.open[0].Wanted
		}
		if q.changed == nil {
			q.changed = make(chan struct{})
		}
		changed := q.changed
		q.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return quota.Wanted{}
		}
	}
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
	of := q.take(answer.ID)
	if gate != nil && answer.Hard != nil {
		gate.Raise(answer.Hard)
	}
	if of != nil {
		of.answer <- answer
	}
}

// serve adds the routes for the share of the quota.
func (q *quotaAsker) serve(mux *http.ServeMux) {
	mux.Handle("GET "+dedicated.QuotaPath, control.Answer(func(r *http.Request) (any, error) { return q.next(r.Context()), nil }))
	mux.Handle("PUT "+dedicated.QuotaPath, control.Answer(func(r *http.Request) (any, error) {
		var answer quota.Answer
		if err := json.NewDecoder(io.LimitReader(r.Body, maxQuestion)).Decode(&answer); err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
		q.answered(answer)
		return nil, nil
	}))
}
