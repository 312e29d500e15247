// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"slices"
	"sync"
)

// turns share something of a process between spaces: each may have a share of it
// at once, and when there is not enough for all who wait, spaces take turns,
// however many requests each has waiting. It is safe for concurrent use.
type turns struct {
	total, share int

	mu      sync.Mutex
	used    int
	lines   map[string]*line
	waiting []*line // in the order of their turns
}

// line is what one space has of it, and its requests that wait.
type line struct {
	space   string
	used    int
	tickets []*ticket
}

type ticket struct {
	cost    int
	granted chan struct{}
}

func newTurns(total, share int) *turns {
	return &turns{total: total, share: share, lines: map[string]*line{}}
}

// take waits until a space may have cost more. release must follow; it may be
// called more than once.
func (t *turns) take(ctx context.Context, space string, cost int) (release func(), err error) {
	mine := &ticket{cost: min(cost, t.share), granted: make(chan struct{})}
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
	release = sync.OnceFunc(func() { t.give(l, mine.cost) })
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

func (t *turns) give(l *line, cost int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.used -= cost
	l.used -= cost
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
	for passed := 0; passed < len(t.waiting); {
		l := t.waiting[0]
		next := l.tickets[0]
		if l.used+next.cost > t.share {
			t.waiting = append(t.waiting[1:], l)
			passed++
			continue
		}
		if t.used+next.cost > t.total {
			return // it is this space's turn, even if others need less
		}
		t.used += next.cost
		l.used += next.cost
		close(next.granted)
		t.waiting = t.waiting[1:]
		if l.tickets = l.tickets[1:]; len(l.tickets) > 0 {
			t.waiting = append(t.waiting, l)
		}
		passed = 0
	}
}
