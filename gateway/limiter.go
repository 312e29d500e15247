// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"errors"
	"hash/maphash"
	"net/http"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/endpoints/responsewriter"

	"github.com/berth-dev/berth/bounds"
	"github.com/berth-dev/berth/internal/httpstatus"
	"github.com/berth-dev/berth/internal/safego"
	"github.com/berth-dev/berth/internal/yield"
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
)

// Limiter limits the requests of each space, of all spaces of each tenant, and of each user: how many are in flight, how many arrive in
// a second, and how many execute at once. Tenants take turns with the processors of the process, and users with those of their tenant. A
// tenant has at most half of them, and less while goroutines wait for a processor, so that a flood of requests of one tenant does not
// block the others. A space without a tenant is one for itself. Who comes from another tenant, and the platform's admins, use what is
// theirs, and nothing of the space.
//
// It covers only requests from outside. A space's own controllers and syncer call its API in process. It is safe for
// concurrent use.
type Limiter struct {
	config        LimiterConfig
	classifier    classifier
	lists, others *turns
	seed          maphash.Seed
	usual         bounds.Limits // of a tenant
	unread        unread

	mu       sync.Mutex
	parties  map[string]*party
	forgetAt int // at this number of parties, idle ones are looked for
}

// LimiterConfig tells a [Limiter] about spaces and tenants. Its functions are called for each request, and concurrently. Each may be nil.
type LimiterConfig struct {
	// Limits returns the limits of a space that differ from the defaults.
	Limits func(space string) bounds.Limits
	// TenantOf returns the tenant of a space; "" if it has none.
	TenantOf func(space string) string
	// TenantLimits returns the limits of a tenant, as [bounds.TenantLimits] makes them; nil for the defaults.
	TenantLimits func(tenant string) bounds.Limits
}

// NewLimiter returns the limiter of a process.
func NewLimiter(c LimiterConfig) *Limiter {
	if c.Limits == nil {
		c.Limits = func(string) bounds.Limits { return nil }
	}
	if c.TenantOf == nil {
		c.TenantOf = func(string) string { return "" }
	}
	if c.TenantLimits == nil {
		c.TenantLimits = func(string) bounds.Limits { return nil }
	}
	processors := runtime.GOMAXPROCS(0)
	half := max(1, processors/2)
	// A list also waits for the disk and for its client.
	lists := max(4, 2*processors)
	l := &Limiter{
		config: c, classifier: newClassifier(), seed: maphash.MakeSeed(), usual: bounds.TenantLimits(nil),
		lists: newTurns(lists, max(1, lists/4)), others: newTurns(max(2, processors)*unitsPerProcessor, half*unitsPerProcessor),
		unread: unread{by: map[string]int{}}, parties: map[string]*party{}, forgetAt: firstForget,
	}
	l.others.pace = newPace(l.others.share, processors)
	l.lists.pace = l.others.pace
	return l
}

// errTurn means that a request has waited for too long.
var errTurn = errors.New("the tenant has more requests than this process executes for it at once: send fewer at a time, and retry")

// limit serves requests of a user to a space within their limits. meter, which may be nil, counts those that are refused.
func (l *Limiter) limit(space, user string, meter Meter, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		k := l.classifier.classify(r)
		who := l.flowOf(space, user, r)
		if err := hold(r, who); err != nil {
			w.Header().Set("Connection", "close") // it is beyond what the tenant may have
			l.refuse(w, r, who, space, err, meter)
			return
		}
		end, err := l.begin(space, who, k)
		if err != nil {
			l.refuse(w, r, who, space, err, meter)
			return
		}
		work := &bounds.Work{}
		work.Begin()
		work.AtEnd(end) // what the handler leaves running counts
		defer work.Done()
		held, err := l.turn(r.Context(), who, k)
		if err != nil {
			reject(w, space, err, meter)
			finish(w, r)
			return
		}
		defer held.release()
		parts := &partsWriter{ResponseWriter: w, ctx: r.Context(), long: k.long, turn: func(ctx context.Context) (func(), error) {
			return l.others.take(ctx, who, partCost)
		}, busy: l.busy(who.tenant), work: work}
		charge := func(d time.Duration) { l.others.pace.chargeIfSlow(who.tenant, d) }
		if k.watch || k.list {
			parts.sent = func(bytes int) { charge(time.Duration(bytes) * watchByte) }
		}
		parts.end = func() {
			parts.over.Store(true)
			held.release()
		}
		defer held.endAfter(k.lease, parts.end)()
		var point yield.Point
		var rest func()
		if k.list && r.Method == http.MethodGet {
			rest = held.rest
		}
		work.ByTurns(bounds.Turns{
			Take:   func(ctx context.Context) (func(), error) { return l.readTurn(ctx, who) },
			Charge: charge,
			Yield:  func() { point.Pass(rest) },
		})
		if !k.long && r.ContentLength != 0 {
			_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyTimeout)) // a request without a body needs no deadline
		}
		served := r.WithContext(bounds.WithWork(r.Context(), work))
		if r.ContentLength != 0 {
			served.Body = pacedBody(r, parts)
		}
		next.ServeHTTP(responsewriter.WrapForHTTP1Or2(parts), served)
		parts.end() // to wait for the client takes no turn
		finish(w, r)
	})
}

// limitVisit serves requests of users of other tenants, which limit has let through, within what the space has for all of them.
func (l *Limiter) limitVisit(space string, meter Meter, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		end, err := l.beginVisit(space, l.classifier.classify(r))
		if err != nil {
			reject(w, space, err, meter)
			return
		}
		defer end()
		next.ServeHTTP(w, r)
	})
}

// turn waits until a request may execute.
func (l *Limiter) turn(ctx context.Context, who flow, k class) (*turn, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, turnTimeout, errTurn)
	defer cancel()
	if k.list {
		return l.lists.begin(ctx, who, 1)
	}
	return l.others.begin(ctx, who, k.cost)
}

// readTurn waits until what a watch begins with may be read, or a part of it.
func (l *Limiter) readTurn(ctx context.Context, who flow) (end func(), err error) {
	release, err := l.lists.take(ctx, who, 1)
	if err != nil {
		return nil, err
	}
	timer := safego.AfterFunc(listLease, "end a turn", release) // after that, it waits for a disk
	return func() {
		timer.Stop()
		release()
	}, nil
}

// busy returns a function that reports whether a tenant may use less than in a process that is not busy. The pace's lock
// is shared by all tenants, so the function asks the pace only as often as it changes.
func (l *Limiter) busy(tenant string) func() bool {
	var last struct {
		asked atomic.Int64 // in nanoseconds, by the clock
		busy  atomic.Bool
	}
	return func() bool {
		now := time.Now().UnixNano()
		if since := now - last.asked.Load(); since >= 0 && since < int64(paceEvery) { // or the clock was set back
			return last.busy.Load()
		}
		busy := l.others.pace.busy(tenant)
		last.busy.Store(busy)
		last.asked.Store(now)
		return busy
	}
}

// refuse rejects a request that is not counted. A tenant with many of these responses under way gets none to further requests.
func (l *Limiter) refuse(w http.ResponseWriter, r *http.Request, who flow, space string, err error, meter Meter) {
	if r.ProtoMajor == 2 {
		if !l.unread.take(who.tenant) {
			countRejected(meter, space, err)
			panic(http.ErrAbortHandler)
		}
		defer l.unread.give(who.tenant)
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(bodyTimeout)) // of this response alone
	}
	reject(w, space, err, meter)
	finish(w, r)
}

// reject rejects a request that exceeds a limit. Kubernetes clients retry by themselves after the time in Retry-After.
func reject(w http.ResponseWriter, space string, err error, meter Meter) {
	countRejected(meter, space, err)
	httpstatus.Write(w, http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests, err.Error(), retryAfter)
}

// countRejected counts a request that is rejected because of an error with the meter, which may be nil.
func countRejected(meter Meter, space string, err error) {
	limit := "turns"
	if exceeded := (*bounds.ExceededError)(nil); errors.As(err, &exceeded) {
		limit = exceeded.Quantity.String()
	} else if errors.Is(err, errConnections) {
		limit = "connections"
	}
	if meter != nil {
		meter.Rejected(space, limit)
	}
}
