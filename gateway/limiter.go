// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"errors"
	"net/http"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/endpoints/responsewriter"

	"github.com/berth-dev/berth/bounds"
	"github.com/berth-dev/berth/internal/httpstatus"
	"github.com/berth-dev/berth/internal/safego"
)

const (
	// unitsPerProcessor is how many writes a processor executes at once.
	unitsPerProcessor = 32
	// turnTimeout limits how long a request waits for its turn, as in upstream's API server.
	turnTimeout = 15 * time.Second
	// bodyTimeout limits how long a client may take to send the body of a request. API servers have the same limit for
	// a request.
	bodyTimeout = 60 * time.Second
	// retryAfter is the Retry-After of rejected requests.
	retryAfter = time.Second

	// If there are many spaces, those without a request for idleSpace are forgotten.
	idleSpace   = 10 * time.Second
	firstForget = 64
)

// Limiter limits the requests of each space: how many are in flight, how many arrive in a second, and how many execute
// at once. Spaces take turns with the processors of the process. A space has at most half of them, and less while
// goroutines wait for a processor, so that a flood of requests to one space does not block the others.
//
// It covers only requests from outside. A space's own controllers and syncer call its API in process. It is safe for
// concurrent use.
type Limiter struct {
	limits        func(space string) bounds.Limits
	classifier    classifier
	lists, others *turns

	mu       sync.Mutex
	spaces   map[string]*spaceRequests
	forgetAt int // at this number of spaces, idle ones are looked for
}

// spaceRequests are the requests of one space.
type spaceRequests struct {
	account  *bounds.Account
	rate     *rate.Limiter
	underWay int
	last     time.Time
}

// NewLimiter returns the limiter of a process. limits returns the limits of a space that differ from the defaults. It
// may be nil.
func NewLimiter(limits func(space string) bounds.Limits) *Limiter {
	if limits == nil {
		limits = func(string) bounds.Limits { return nil }
	}
	processors := runtime.GOMAXPROCS(0)
	half := max(1, processors/2)
	// A list also waits for the disk and for its client.
	lists := max(4, 2*processors)
	l := &Limiter{
		limits: limits, classifier: newClassifier(),
		lists: newTurns(lists, max(1, lists/4)), others: newTurns(max(2, processors)*unitsPerProcessor, half*unitsPerProcessor),
		spaces: map[string]*spaceRequests{}, forgetAt: firstForget,
	}
	l.others.pace = newPace(l.others.share, processors)
	l.lists.pace = l.others.pace
	return l
}

// errTurn means that a request has waited for too long.
var errTurn = errors.New("the space has more requests than this process executes for it at once: send fewer at a time, and retry")

// limit serves a space's requests within its limits.
func (l *Limiter) limit(space string, meter Meter, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		k := l.classifier.classify(r)
		end, err := l.begin(space, k)
		if err != nil {
			reject(w, space, err, meter)
			return
		}
		work := &bounds.Work{}
		work.Begin()
		work.AtEnd(end) // what the handler leaves running counts
		defer work.Done()
		release, err := l.turn(r.Context(), space, k)
		if err != nil {
			reject(w, space, err, meter)
			return
		}
		defer release()
		parts := &partsWriter{ResponseWriter: w, ctx: r.Context(), long: k.long, turn: func(ctx context.Context) (func(), error) {
			return l.others.take(ctx, space, partCost)
		}, busy: l.busy(space)}
		parts.end = func() {
			parts.over.Store(true)
			release()
		}
		defer safego.AfterFunc(k.lease, "end a turn", parts.end).Stop()
		if !k.long && r.ContentLength != 0 {
			_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyTimeout)) // a request without a body needs no deadline
		}
		served := r.WithContext(bounds.WithWork(r.Context(), work))
		if r.ContentLength != 0 {
			served.Body = pacedBody(r, parts)
		}
		next.ServeHTTP(responsewriter.WrapForHTTP1Or2(parts), served)
	})
}

// begin counts a request until end is called, or rejects it.
func (l *Limiter) begin(space string, k class) (end func(), err error) {
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.spaces[space]
	if s == nil {
		l.forget(now)
		limits := l.limits(space)
		perSecond := limits.Of(bounds.RequestRate)
		s = &spaceRequests{account: bounds.NewAccount(limits), rate: rate.NewLimiter(rate.Limit(perSecond), int(2*perSecond))}
		l.spaces[space] = s
	}
	s.last = now
	if err := s.account.Take(k.quantity, 1); err != nil {
		return nil, err
	}
	if !s.rate.AllowN(now, 1) {
		s.account.Give(k.quantity, 1)
		s.account.Refuse(bounds.RequestRate)
		perSecond := s.account.Limit(bounds.RequestRate)
		return nil, &bounds.ExceededError{Quantity: bounds.RequestRate, Asked: 1, Used: perSecond, Limit: perSecond}
	}
	s.underWay++
	return func() {
		s.account.Give(k.quantity, 1)
		l.mu.Lock()
		defer l.mu.Unlock()
		s.underWay--
	}, nil
}

// forget removes spaces without requests. The limiter must be locked.
func (l *Limiter) forget(now time.Time) {
	if len(l.spaces) < l.forgetAt {
		return
	}
	for name, s := range l.spaces {
		if s.underWay == 0 && now.Sub(s.last) > idleSpace {
			delete(l.spaces, name)
		}
	}
	l.forgetAt = max(firstForget, 2*len(l.spaces))
}

// Count sets the current values of the quantities that the limiter counts.
func (l *Limiter) Count(space string, usage []bounds.Usage) {
	l.mu.Lock()
	s := l.spaces[space]
	l.mu.Unlock()
	if s == nil {
		return
	}
	for _, own := range s.account.Usage() {
		switch own.Quantity {
		case bounds.RequestsReading, bounds.RequestsWriting, bounds.RequestsLongRunning, bounds.RequestRate:
			if i := slices.IndexFunc(usage, func(u bounds.Usage) bool { return u.Quantity == own.Quantity }); i >= 0 {
				usage[i] = own
			}
		}
	}
}

// turn waits until a request may execute.
func (l *Limiter) turn(ctx context.Context, space string, k class) (release func(), err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, turnTimeout, errTurn)
	defer cancel()
	if k.list {
		return l.lists.take(ctx, space, 1)
	}
	return l.others.take(ctx, space, k.cost)
}

// busy returns a function that reports whether a space may use less than in a process that is not busy. The pace's lock
// is shared by all spaces, so the function asks the pace only as often as it changes.
func (l *Limiter) busy(space string) func() bool {
	var last struct {
		asked atomic.Int64 // in nanoseconds, by the clock
		busy  atomic.Bool
	}
	return func() bool {
		now := time.Now().UnixNano()
		if since := now - last.asked.Load(); since >= 0 && since < int64(paceEvery) { // or the clock was set back
			return last.busy.Load()
		}
		share, _, _ := l.others.shareOf(&line{space: space})
		busy := share < l.others.share
		last.busy.Store(busy)
		last.asked.Store(now)
		return busy
	}
}

// reject rejects a request that exceeds a limit. Kubernetes clients retry by themselves after the time in Retry-After.
func reject(w http.ResponseWriter, space string, err error, meter Meter) {
	limit, message := "turns", err.Error()
	if exceeded := (*bounds.ExceededError)(nil); errors.As(err, &exceeded) {
		limit = exceeded.Quantity.String()
	}
	if meter != nil {
		meter.Rejected(space, limit)
	}
	httpstatus.Write(w, http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests, message, retryAfter)
}
