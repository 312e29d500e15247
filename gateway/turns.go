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

// turns share something of a process between spaces: each may have a share of it
// at once, and when there is not enough for all who wait, spaces take turns,
// however many requests each has waiting. It is safe for concurrent use.
type turns struct {
	total, share int
	// pace makes a space's share less while the process is busy; nil does not.
	pace *pace

	mu      sync.Mutex
	used    int
	lines   map[string]*line
	waiting []*line     // in the order of their turns
	again   *time.Timer // for spaces that the pace has wait
}

// line is what one space has of it, and its requests that wait.
type line struct {
	space   string
	used    int
	tickets []*ticket
}

type ticket struct {
	cost    int
	at      time.Time // when it was granted
	charged bool      // to the space's pace
	granted chan struct{}
}

func newTurns(total, share int) *turns {
	return &turns{total: total, share: share, lines: map[string]*line{}}
}

// take waits until a space may have cost more. release must follow; it may be
// called more than once.
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
		t.grant() // those behind it may need less
		t.drop(l)
	}
	t.mu.Unlock()
	if i < 0 { // it was granted meanwhile
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

// drop forgets a space that has and wants nothing.
func (t *turns) drop(l *line) {
	if l.used == 0 && len(l.tickets) == 0 {
		delete(t.lines, l.space)
	}
}

// grant lets through whoever can be: one of each space, and then again.
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
			return // it is this space's turn, even if others need less; what is given back lets it through
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
		t.grantAfter(min(again, paceEvery)) // the pace may be another by then
	}
}

// shareOf is how much a space may have now, at least 1, how long it has to wait for that, and whether it is charged for it.
func (t *turns) shareOf(l *line) (share int, wait time.Duration, charged bool) {
	if t.pace == nil {
		return t.share, 0, false
	}
	units, wait, charged := t.pace.share(l.space)
	return min(t.share, units), wait, charged
}

// grantAfter grants again after a while.
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
