// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"net/http"
	"slices"
	"sync"

	"k8s.io/client-go/util/flowcontrol"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/bounds"
	"github.com/berth-dev/berth/syncer/hostcache"
	"github.com/berth-dev/berth/translate"
)

// hostRequests is the maximum number of concurrent requests of all spaces' syncers to the host. One space may have half
// of them at most, because the host may take long for some of a tenant's objects, for example with a webhook that does
// not respond.
const hostRequests = 2 * workers

// Slots is a number of slots that spaces share. While all are taken, waiting spaces get free slots in turn, however
// many requests each has waiting.
type Slots struct {
	most int // for one space

	mu    sync.Mutex
	free  int
	held  map[string]int             // by space
	turns []string                   // waiting spaces, the next one first
	waits map[string][]chan struct{} // the waiting requests of each space, in order; a channel is closed to pass a slot
}

func newSlots(n, most int) *Slots {
	return &Slots{most: most, free: n, held: map[string]int{}, waits: map[string][]chan struct{}{}}
}

// NewSlots returns the slots for requests to the host.
func NewSlots() *Slots { return newSlots(hostRequests, workers) }

// take waits for a slot until ctx ends. After a success, give must be called.
func (f *Slots) take(ctx context.Context, space string) error {
	f.mu.Lock()
	if f.free > 0 && f.held[space] < f.most {
		f.free--
		f.held[space]++
		f.mu.Unlock()
		return nil
	}
	mine := make(chan struct{})
	if len(f.waits[space]) == 0 {
		f.turns = append(f.turns, space)
	}
	f.waits[space] = append(f.waits[space], mine)
	f.mu.Unlock()
	select {
	case <-mine:
		return nil
	case <-ctx.Done():
	}
	f.mu.Lock()
	i := slices.Index(f.waits[space], mine)
	if i >= 0 {
		f.waits[space] = slices.Delete(f.waits[space], i, i+1)
		f.forget(space)
	}
	f.mu.Unlock()
	if i < 0 { // it was passed in the meantime
		f.give(space)
	}
	return ctx.Err()
}

// give releases a slot of a space.
func (f *Slots) give(from string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.held[from]--; f.held[from] == 0 {
		delete(f.held, from)
	}
	i := slices.IndexFunc(f.turns, func(space string) bool { return f.held[space] < f.most })
	if i < 0 {
		f.free++
		return
	}
	space := f.turns[i]
	f.turns = append(slices.Delete(f.turns, i, i+1), space)
	f.held[space]++
	close(f.waits[space][0])
	f.waits[space] = f.waits[space][1:]
	f.forget(space)
}

// forget removes a space that no longer waits.
func (f *Slots) forget(space string) {
	if len(f.waits[space]) > 0 {
		return
	}
	delete(f.waits, space)
	if i := slices.Index(f.turns, space); i >= 0 {
		f.turns = slices.Delete(f.turns, i, i+1)
	}
}

// BurstSeconds is how many seconds' worth of writes a space may send at once.
const BurstSeconds = 10

// paced delays a space's requests to the host: writes by the space's own limit, and all requests until they get a slot.
type paced struct {
	slots   *Slots
	space   string
	account *bounds.Account
	writes  flowcontrol.RateLimiter // nil: no limit
}

func newPaced(slots *Slots, space string, account *bounds.Account) *paced {
	p := &paced{slots: slots, space: space, account: account}
	if account != nil {
		limit := account.Limit(bounds.HostWritesPerSecond)
		p.writes = flowcontrol.NewTokenBucketRateLimiter(float32(limit), int(BurstSeconds*limit))
	}
	return p
}

func (p *paced) through(to http.RoundTripper) http.RoundTripper { return pacedTransport{p, to} }

type pacedTransport struct {
	*paced
	to http.RoundTripper
}

// RoundTrip implements [http.RoundTripper].
func (t pacedTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	if t.writes != nil && req.Method != http.MethodGet && !t.writes.TryAccept() {
		t.account.Refuse(bounds.HostWritesPerSecond)
		if err := t.writes.Wait(req.Context()); err != nil {
			return nil, err
		}
	}
	if err := t.slots.take(req.Context(), t.space); err != nil {
		return nil, err
	}
	defer t.slots.give(t.space)
	return t.to.RoundTrip(req)
}

// NewClient returns a client that acts as the space's own account, within its limits.
func NewClient(h *hostcache.Host, slots *Slots, space translate.Space, limits *bounds.Account) (client.Client, error) {
	config := h.Account(space)
	config.Wrap(newPaced(slots, space.Name, limits).through)
	return h.NewClient(config)
}
