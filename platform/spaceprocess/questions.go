// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package spaceprocess

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/berth-dev/berth/control"
	"github.com/berth-dev/berth/shard/dedicated"
)

const (
	// answerWithin is how long a question waits for the platform.
	answerWithin = 10 * time.Second
	// awayAfter is how long the platform may not have asked for questions until it is known not to answer.
	awayAfter = dedicated.QuestionWait + 2*answerWithin
	// maxAnswer limits an answer, in bytes.
	maxAnswer = 256 << 10
)

// questions are those of the process for the platform. The platform connects to this process, and not the other way round, so a question
// waits until the platform asks for one. The zero value is ready to use. It is safe for concurrent use.
type questions[Question, Answer any] struct {
	mu      sync.Mutex
	last    uint64 // the number of the last question; 0 before the first
	open    []question[Question, Answer]
	changed chan struct{} // closed when there is another question
	polled  time.Time     // when the platform asked last
}

type question[Question, Answer any] struct {
	id     uint64
	asked  Question
	answer chan Answer
}

var errNoAnswer = errors.New("the platform doesn't answer; it may be restarting")

// ask asks what numbered returns for its number, and waits for the answer.
func (q *questions[Question, Answer]) ask(parent context.Context, numbered func(id uint64) Question) (answer Answer, err error) {
	ctx, cancel := context.WithTimeout(parent, answerWithin)
	defer cancel()
	answered := make(chan Answer, 1)
	q.mu.Lock()
	if !q.polled.IsZero() && time.Since(q.polled) > awayAfter {
		q.mu.Unlock()
		return answer, errNoAnswer
	}
	if q.last == 0 { // an answer to an earlier process must not be taken for one to this process
		q.last = rand.Uint64N(math.MaxUint64 / 2)
	}
	q.last++
	id := q.last
	q.open = append(q.open, question[Question, Answer]{id, numbered(id), answered})
	if q.changed != nil {
		close(q.changed)
		q.changed = nil
	}
	q.mu.Unlock()
	select {
	case answer = <-answered:
		return answer, nil
	case <-ctx.Done():
		q.remove(id)
		if parent.Err() != nil {
			return answer, context.Cause(parent)
		}
		return answer, errNoAnswer
	}
}

// next waits for a question. The zero value means that there is none.
func (q *questions[Question, Answer]) next(ctx context.Context) (asked Question) {
	ctx, cancel := context.WithTimeout(ctx, dedicated.QuestionWait)
	defer cancel()
	for {
		q.mu.Lock()
		q.polled = time.Now()
		if len(q.open) > 0 {
			defer q.mu.Unlock()
			return q.open[0].asked
		}
		if q.changed == nil {
			q.changed = make(chan struct{})
		}
		changed := q.changed
		q.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return asked
		}
	}
}

// answer answers a question, unless nobody waits for it any longer.
func (q *questions[Question, Answer]) answer(id uint64, answer Answer) {
	if of := q.remove(id); of != nil {
		of.answer <- answer
	}
}

// remove removes an open question, and returns it; nil if there is none.
func (q *questions[Question, Answer]) remove(id uint64) *question[Question, Answer] {
	q.mu.Lock()
	defer q.mu.Unlock()
	i := slices.IndexFunc(q.open, func(of question[Question, Answer]) bool { return of.id == id })
	if i < 0 {
		return nil
	}
	of := q.open[i]
	q.open = slices.Delete(q.open, i, i+1)
	return &of
}

// serve adds the routes for the questions. answered is called for each answer of the platform.
func (q *questions[Question, Answer]) serve(mux *http.ServeMux, path string, answered func(Answer)) {
	mux.Handle("GET "+path, control.Answer(func(r *http.Request) (any, error) { return q.next(r.Context()), nil }))
	mux.Handle("PUT "+path, control.Answer(func(r *http.Request) (any, error) {
		var answer Answer
		if err := json.NewDecoder(io.LimitReader(r.Body, maxAnswer)).Decode(&answer); err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
		answered(answer)
		return nil, nil
	}))
}
