// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	utilquota "k8s.io/apiserver/pkg/quota/v1"
	"k8s.io/utils/clock"
)

const (
	// seenWithin is how long what was admitted counts, although it wasn't seen in the space yet.
	seenWithin = 30 * time.Second
	// askAgain is how long a refusal holds, unless something was freed.
	askAgain = 500 * time.Millisecond
	// askPause is the shortest time between a refusal and the next ask.
	askPause = 50 * time.Millisecond
	// maxAsks limits how often a request asks, if it is granted what it needs and others use it first.
	maxAsks = 100
)

// Gate admits what a space creates, in the process of the space: as long as the space's share is enough, without asking anybody. It is
// safe for concurrent use.
type Gate struct {
	ask   Ask
	clock clock.Clock
	turn  chan struct{} // held by whoever asks
	// counted are closed when seen has all objects of the space.
	counted []<-chan struct{}

	mu       sync.Mutex
	hard     Amounts // nil until it is known
	seen     Amounts // what the objects of the space use
	admitted map[string][]*Admitted
	waiting  Amounts // the sum of admitted
	refusal  refusal
	asked    time.Time // when it was last refused
	closed   bool
}

// Ask asks for a share that is enough for what a space has and needs more. When it returns without an error, [Gate.Raise] was called with
// what the host lets the space use.
type Ask func(ctx context.Context, has, more Amounts) error

// refusal is the last error of an ask.
type refusal struct {
	err   *Exceeded
	more  Amounts
	until time.Time
}

// Admitted is what was admitted and wasn't seen yet.
type Admitted struct {
	gate  *Gate
	key   string
	more  Amounts
	until time.Time
}

// NewGate returns a gate of a space.
func NewGate(ask Ask, clock clock.Clock) *Gate {
	return &Gate{ask: ask, clock: clock, turn: make(chan struct{}, 1), seen: Amounts{}, waiting: Amounts{}, admitted: map[string][]*Admitted{}}
}

// CountedAfter has the gate admit nothing until these channels are closed. It must be called before the first Admit.
func (g *Gate) CountedAfter(counted ...<-chan struct{}) { g.counted = append(g.counted, counted...) }

// Admit admits an object that uses more than before. Done must be called with whether it was written. The error wraps [Exceeded] if a
// quota doesn't allow it. Nothing is to be done for an object that uses nothing.
func (g *Gate) Admit(ctx context.Context, key string, more Amounts) (*Admitted, error) {
	if more = withoutZeros(more); more == nil {
		return nil, nil
	}
	for _, counted := range g.counted {
		select {
		case <-counted:
		case <-ctx.Done():
			return nil, fmt.Errorf("wait until the objects of the space are counted: %w", context.Cause(ctx))
		}
	}
	if admitted, _ := g.admit(key, more); admitted != nil {
		return admitted, nil
	}
	select {
	case g.turn <- struct{}{}:
		defer func() { <-g.turn }()
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for the quota of the space: %w", context.Cause(ctx))
	}
	for range maxAsks {
		admitted, has := g.admit(key, more)
		if admitted != nil {
			return admitted, nil
		}
		wait, err := g.refused(more)
		if err != nil {
			return nil, err
		}
		if wait > 0 {
			select {
			case <-g.clock.After(wait):
			case <-ctx.Done():
				return nil, fmt.Errorf("wait for the quota of the space: %w", context.Cause(ctx))
			}
			continue
		}
		err = g.ask(ctx, has, more)
		if exceeded := (*Exceeded)(nil); errors.As(err, &exceeded) {
			g.mu.Lock()
			g.refusal, g.asked = refusal{err: exceeded, more: more, until: g.clock.Now().Add(askAgain)}, g.clock.Now()
			g.mu.Unlock()
		}
		if err != nil {
			return nil, err
		}
	}
	return nil, errors.New("others use the quota of the space all the time; try again")
}

// admit admits an object if the space's share is enough. Otherwise, it returns what the space uses.
func (g *Gate) admit(key string, more Amounts) (*Admitted, Amounts) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.expire()
	if g.hard == nil || !g.fits(more) {
		return nil, g.used()
	}
	one := &Admitted{gate: g, key: key, more: more, until: g.clock.Now().Add(seenWithin)}
	g.admitted[key] = append(g.admitted[key], one)
	add(g.waiting, more)
	return one, nil
}

// fits reports whether the space's share is enough for more.
func (g *Gate) fits(more Amounts) bool {
	for name, amount := range more {
		if hard, limited := g.hard[name]; limited {
			sum := amount.DeepCopy()
			sum.Add(g.seen[name])
			sum.Add(g.waiting[name])
			if sum.Cmp(hard) > 0 {
				return false
			}
		}
	}
	return true
}

// expire drops what was admitted and not seen for too long.
func (g *Gate) expire() {
	now := g.clock.Now()
	for key, waiting := range g.admitted {
		for _, one := range waiting {
			if one.until.Before(now) {
				g.drop(key, one)
			}
		}
	}
}

// used is what the space uses, or may use in a moment.
func (g *Gate) used() Amounts { return utilquota.Add(g.seen, g.waiting) }

// Done says whether the object that was admitted was written.
func (a *Admitted) Done(written bool) {
	if a == nil || written {
		return // it counts until it is seen
	}
	a.gate.mu.Lock()
	defer a.gate.mu.Unlock()
	a.gate.drop(a.key, a)
}

func (g *Gate) drop(key string, one *Admitted) {
	var left []*Admitted
	for _, other := range g.admitted[key] {
		if other != one {
			left = append(left, other)
			continue
		}
		subtract(g.waiting, one.more)
	}
	if g.admitted[key] = left; len(left) == 0 {
		delete(g.admitted, key)
	}
}

// Saw is told what an object of the space uses, and what it used before.
func (g *Gate) Saw(key string, before, after Amounts) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if waiting := g.admitted[key]; len(waiting) > 0 && !same(before, after) {
		g.drop(key, waiting[0])
	}
	add(g.seen, after)
	subtract(g.seen, before)
	if len(Over(before, after)) > 0 {
		g.refusal = refusal{}
	}
}

// Raise tells what the host lets the space use.
func (g *Gate) Raise(hard Amounts) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.hard = maps.Clone(hard)
}

// Forget forgets what the host lets the space use, so that the gate asks.
func (g *Gate) Forget() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.hard = nil
}

// Close is called when the space stops. What its objects use from then on isn't known.
func (g *Gate) Close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
}

// Lower has the space use no more of some resources, as far as it doesn't yet, and returns what it uses of all. It returns nil once the
// gate is closed.
func (g *Gate) Lower(to Amounts) Amounts {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return nil
	}
	g.expire()
	used := g.used()
	for name, amount := range to {
		if hard, limited := g.hard[name]; limited && hard.Cmp(amount) > 0 {
			if use := used[name]; use.Cmp(amount) > 0 {
				amount = use
			}
			g.hard[name] = amount
		}
	}
	return used
}

// counted are resources that gates count, whatever a space has. Others count once an object uses them.
var counted = []corev1.ResourceName{
	corev1.ResourcePods, corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceRequestsCPU, corev1.ResourceRequestsMemory,
	corev1.ResourceLimitsCPU, corev1.ResourceLimitsMemory, corev1.ResourcePersistentVolumeClaims,
}

// Drift returns how much more the host counts than the objects of the space use, negative if it is less, of each resource that gates count
// and of which they don't agree, except requests.storage and devices of resource claims: a claim of a tenant's own volume counts with the size of that on the host,
// and a resource claim once the host's scheduler or the syncer has made it. The host follows changes of the space with a delay of seconds. It returns nil for a space that doesn't
// run.
func (g *Gate) Drift(onHost Amounts) Amounts {
	for _, all := range g.counted {
		select {
		case <-all:
		default:
			return nil
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return nil
	}
	drift := Amounts{}
	for _, name := range slices.AppendSeq(slices.Clone(counted), maps.Keys(g.seen)) {
		amount, limited := onHost[name]
		if !limited || name == corev1.ResourceRequestsStorage || CountsClaims(name) {
			continue
		}
		amount = amount.DeepCopy()
		if amount.Sub(g.seen[name]); !amount.IsZero() {
			drift[name] = amount
		}
	}
	return drift
}

// Freed says that quotas may allow more than when they last refused something.
func (g *Gate) Freed() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.refusal = refusal{}
}

// refused returns the error of the last ask, if that wanted as little and was a moment ago. Otherwise, it returns how long to wait before the
// next ask, so that a tenant that is refused again and again doesn't keep the host busy.
func (g *Gate) refused(more Amounts) (wait time.Duration, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	last := g.refusal
	wait = askPause - g.clock.Since(g.asked)
	if last.err == nil || last.until.Before(g.clock.Now()) {
		return wait, nil
	}
	lacks := last.err.Limited
	if len(Over(only(last.more, lacks), more)) > 0 || len(only(more, lacks)) == 0 {
		return wait, nil // it wants less
	}
	again := *last.err
	again.Requested = only(more, lacks)
	return 0, &again
}
