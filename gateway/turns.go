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

// turns divides a resource of the process between spaces. Each may use its share at once. If there is not enough for
// all, spaces take turns, however many requests each has waiting. It is safe for concurrent use.
type turns struct {
	total, share int
	// pace, if set, reduces a space's share while the process is busy.
	pace *pace

	mu      sync.Mutex
	used    int
	lines   map[string]*line
	waiting []*line     // in the order of their turns
	again   *time.Timer // for spaces that have to wait because of the pace
}

// line is what one space uses, and its waiting requests.
type line struct {
	space   string
	used    int
	tickets []*ticket
}

type ticket struct {
	cost    int
	at      time.Time // when it was granted
	charged bool      // counts towards the space's pace
	granted chan struct{}
}

func newTurns(total, share int) *turns {
	return &turns{total: total, share: share, lines: map[string]*line{}}
}

// take waits until a space may use cost more. release must be called afterwards; it may be called more than once.
func (t *turns) take(ctx context.Context, space string, cost int) (release func(), err error) {
	mine := &ticket{cost: cost, granted: make(chan struct{})}
	t.mu.Lock()
	l := t.lines[space]
	if l == nil {
		l = &line{space: space}
		t.lines[space] = l
	}
	if l.tickets = append(l.tickets, mine); len(l.tickets) == 1 {
		t.waiting = append(t.waiting, l)
	}
	t.grant()
	t.mu.Unlock()
	release = sync.OnceFunc(func() { t.give(l, mine) })
	select {
	case <-mine.granted:
		return release, nil
	case <-ctx.Done():
	}
	t.mu.Lock()
	i := slices.Index(l.tickets, mine)
	if i >= 0 {
		l.tickets = slices.Delete(l.tickets, i, i+1)
		if len(l.tickets) == 0 {
			t.waiting = slices.DeleteFunc(t.waiting, func(other *line) bool { return other == l })
		}
		t.grant() // requests behind it may need less
		t.drop(l)
	}
	t.mu.Unlock()
	if i < 0 { // it was granted in the meantime
		release()
	}
	return nil, context.Cause(ctx)
}

func (t *turns) give(l *line, of *ticket) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if of.charged {
		t.pace.charge(l.space, time.Since(of.at))
	}
	t.used -= of.cost
	l.used -= of.cost
	t.grant()
	t.drop(l)
}

// drop removes a space that uses nothing and has no waiting requests.
func (t *turns) drop(l *line) {
	if l.used == 0 && len(l.tickets) == 0 {
		delete(t.lines, l.space)
	}
}

// grant admits as many waiting requests as possible, one of each space in turn.
func (t *turns) grant() {
	var again time.Duration
	for passed := 0; passed < len(t.waiting); {
		l := t.waiting[0]
		next := l.tickets[0]
		share, wait, charged := t.shareOf(l)
		cost := min(next.cost, share)
		if wait > 0 || l.used+cost > share {
			if wait > 0 && (again == 0 || wait < again) {
				again = wait
			}
			t.waiting = append(t.waiting[1:], l)
			passed++
			continue
		}
		if t.used+cost > t.total {
			return // it is this space's turn, even if others need less; grant is called again when something is released
		}
		next.cost, next.charged, next.at = cost, charged, time.Now()
		t.used += cost
		l.used += cost
		close(next.granted)
		t.waiting = t.waiting[1:]
		if l.tickets = l.tickets[1:]; len(l.tickets) > 0 {
			t.waiting = append(t.waiting, l)
		}
		passed = 0
	}
	if again > 0 {
		t.grantAfter(min(again, paceEvery)) // the pace may have changed by then
	}
}

// shareOf returns the current share of a space, at least 1, how long it has to wait for it, and whether it is charged
// for it.
func (t *turns) shareOf(l *line) (share int, wait time.Duration, charged bool) {
	if t.pace == nil {
		return t.share, 0, false
	}
	units, wait, charged := t.pace.share(l.space)
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
