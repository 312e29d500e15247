// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/berth-dev/berth/internal/safego"
)

// turns divides a resource of the process between tenants. Each may use its share at once. If there is not enough for all, tenants take
// turns, however many requests each has waiting, and so do the users of a tenant. It is safe for concurrent use.
type turns struct {
	total, share int
	// pace, if set, reduces a tenant's share while the process is busy.
	pace *pace

	mu      sync.Mutex
	used    int
	resting int // tickets
	lines   map[string]*line
	waiting []*line     // in the order of their turns
	again   *time.Timer // for tenants that have to wait because of the pace
}

// flow is whose turn it is: that of a tenant, and among its users that of one of them. Some users have the same number.
type flow struct {
	tenant string
	user   uint8
}

// line is what one tenant uses, and its waiting requests.
type line struct {
	tenant string
	used   int
	users  []*userLine // that have waiting requests, in the order of their turns
}

// userLine are the waiting requests of a user.
type userLine struct {
	user    uint8
	tickets []*ticket
}

type ticket struct {
	cost    int
	at      time.Time // when it was granted
	charged bool      // counts towards the tenant's pace
	resting int       // goroutines that rest; if there is one, the ticket uses nothing of the total
	given   bool      // back
	granted chan struct{}
}

func newTurns(total, share int) *turns {
	return &turns{total: total, share: share, lines: map[string]*line{}}
}

// take waits until a tenant may use cost more, and it is the user's turn. release must be called afterwards; it may be called more than
// once.
func (t *turns) take(ctx context.Context, who flow, cost int) (release func(), err error) {
	held, err := t.begin(ctx, who, cost)
	if err != nil {
		return nil, err
	}
	return held.release, nil
}

// begin is [turns.take] for work that rests.
func (t *turns) begin(ctx context.Context, who flow, cost int) (*turn, error) {
	mine := &ticket{cost: cost, granted: make(chan struct{})}
	t.mu.Lock()
	l := t.lines[who.tenant]
	if l == nil {
		l = &line{tenant: who.tenant}
		t.lines[who.tenant] = l
	}
	if len(l.users) == 0 {
		t.waiting = append(t.waiting, l)
	}
	l.join(who.user, mine)
	t.grant()
	t.mu.Unlock()
	held := &turn{turns: t, line: l, ticket: mine, release: sync.OnceFunc(func() { t.give(l, mine) })}
	select {
	case <-mine.granted:
		return held, nil
	case <-ctx.Done():
	}
	t.mu.Lock()
	left := l.leave(who.user, mine)
	if left {
		if len(l.users) == 0 {
			t.waiting = slices.DeleteFunc(t.waiting, func(other *line) bool { return other == l })
		}
		t.grant() // requests behind it may need less
		t.drop(l)
	}
	t.mu.Unlock()
	if !left { // it was granted in the meantime
		held.release()
	}
	return nil, context.Cause(ctx)
}

// join has a request wait behind those of its user.
func (l *line) join(user uint8, mine *ticket) {
	for _, u := range l.users {
		if u.user == user {
			u.tickets = append(u.tickets, mine)
			return
		}
	}
	l.users = append(l.users, &userLine{user: user, tickets: []*ticket{mine}})
}

// leave reports whether a request waited until now.
func (l *line) leave(user uint8, mine *ticket) bool {
	for i, u := range l.users {
		at := slices.Index(u.tickets, mine)
		if u.user != user || at < 0 {
			continue
		}
		if u.tickets = slices.Delete(u.tickets, at, at+1); len(u.tickets) == 0 {
			l.users = slices.Delete(l.users, i, i+1)
		}
		return true
	}
	return false
}

// pass removes the request whose turn it is. It is another user's turn then.
func (l *line) pass() {
	u := l.users[0]
	l.users = l.users[1:]
	if u.tickets = u.tickets[1:]; len(u.tickets) > 0 {
		l.users = append(l.users, u)
	}
}

func (t *turns) give(l *line, of *ticket) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if of.charged && of.resting == 0 {
		t.pace.charge(l.tenant, time.Since(of.at))
	}
	if of.resting == 0 {
		t.used -= of.cost
	}
	of.given = true
	l.used -= of.cost
	t.grant()
	t.drop(l)
}

// drop removes a tenant that uses nothing and has no waiting requests.
func (t *turns) drop(l *line) {
	if l.used == 0 && len(l.users) == 0 {
		delete(t.lines, l.tenant)
	}
}

// grant admits as many waiting requests as possible, one of each tenant in turn.
func (t *turns) grant() {
	var again time.Duration
	for passed := 0; passed < len(t.waiting); {
		l := t.waiting[0]
		next := l.users[0].tickets[0]
		share, wait, charged := t.shareOf(l)
		cost := min(next.cost, share)
		if wait > 0 || l.used+cost > share {
			if t.pace != nil && share < t.share {
				t.pace.want(l.tenant)
			}
			if wait > 0 && (again == 0 || wait < again) {
				again = wait
			}
			t.waiting = append(t.waiting[1:], l)
			passed++
			continue
		}
		if t.used+cost > t.total {
			return // it is this tenant's turn, even if others need less; grant is called again when something is released
		}
		next.cost, next.charged, next.at = cost, charged, time.Now()
		t.used += cost
		l.used += cost
		close(next.granted)
		t.waiting = t.waiting[1:]
		if l.pass(); len(l.users) > 0 {
			t.waiting = append(t.waiting, l)
		}
		passed = 0
	}
	if again > 0 {
		t.grantAfter(min(again, paceEvery)) // the pace may have changed by then
	}
}

// shareOf returns the current share of a tenant, at least 1, how long it has to wait for it, and whether it is charged
// for it.
func (t *turns) shareOf(l *line) (share int, wait time.Duration, charged bool) {
	if t.pace == nil {
		return t.share, 0, false
	}
	units, wait, charged := t.pace.share(l.tenant)
	return min(t.share, units), wait, charged
}

// grantAfter calls grant again after a pause.
func (t *turns) grantAfter(wait time.Duration) {
	if t.again != nil {
		t.again.Reset(wait)
		return
	}
	t.again = safego.AfterFunc(wait, "grant turns", func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.grant()
	})
}
