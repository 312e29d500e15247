// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package hostcache

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/berth-dev/berth/internal/safego"
)

const (
	// maxBatches is how many batches of spaces are listed at once, and maxLists how many resources of a batch.
	maxBatches, maxLists = 2, 8
)

var (
	errStopped  = errors.New("the watches on the host have stopped")
	errDisowned = errors.New("the space has left this process")
)

// ownSpaces are the spaces of the host that this process has.
type ownSpaces struct {
	mu      sync.RWMutex
	of      map[string]*ownSpace
	life    context.Context //nolint:containedctx // of the lists, which outlast a call; nil before the start
	stopped bool
	running int
	next    *batch // is listed when fewer than maxBatches are; nil if there is none
	work    sync.WaitGroup
}

type ownSpace struct {
	cached bool   // what the host has of the space is in the cache
	batch  *batch // that lists it; nil if none does
}

// batch are spaces that are listed together.
type batch struct {
	spaces []string
	done   chan struct{}
	// err, and those of single spaces, are set before done is closed.
	err   error
	errOf map[string]error
}

// IsOwn reports whether this process has a space, so that the cache keeps its objects.
func (h *Host) IsOwn(space string) bool {
	h.own.mu.RLock()
	defer h.own.mu.RUnlock()
	return h.own.of[space] != nil
}

// HasCached reports whether the cache contains all that the host has of a space.
func (h *Host) HasCached(space string) bool {
	if !h.OwnOnly {
		return true
	}
	h.own.mu.RLock()
	defer h.own.mu.RUnlock()
	own := h.own.of[space]
	return own != nil && own.cached
}

// Own makes spaces this process's own, and returns when all that the host has of them is in the cache. Before
// [Host.Start], it only notes them: Start reads what there is. Without [Options.OwnOnly], all spaces always are. If
// Own fails, the spaces are own nevertheless, and it has to be called again before their syncers start.
func (h *Host) Own(ctx context.Context, spaces ...string) error {
	for space, b := range h.beginOwn(spaces) {
		select {
		case <-b.done:
		case <-ctx.Done():
			return fmt.Errorf("list what the host has of space %s: %w", space, context.Cause(ctx))
		}
		err := errors.Join(b.err, b.errOf[space])
		if err == nil && !h.HasCached(space) {
			err = errDisowned
		}
		if err != nil {
			return fmt.Errorf("list what the host has of space %s: %w", space, err)
		}
	}
	return nil
}

// BeginOwn is [Host.Own] without waiting. Spaces of calls at the same time are listed together.
func (h *Host) BeginOwn(spaces ...string) { h.beginOwn(spaces) }

// beginOwn returns the batches of the spaces that are not in the cache yet.
func (h *Host) beginOwn(spaces []string) map[string]*batch {
	if !h.OwnOnly {
		return nil
	}
	h.own.mu.Lock()
	defer h.own.mu.Unlock()
	waits := map[string]*batch{}
	for _, space := range spaces {
		own := h.own.of[space]
		if own == nil {
			own = &ownSpace{}
			h.own.of[space] = own
		}
		switch {
		case own.cached, h.own.life == nil:
			continue
		case h.own.stopped:
			waits[space] = stoppedBatch()
			continue
		case own.batch == nil:
			if h.own.next == nil {
				h.own.next = &batch{done: make(chan struct{}), errOf: map[string]error{}}
			}
			own.batch = h.own.next
			own.batch.spaces = append(own.batch.spaces, space)
		}
		waits[space] = own.batch
	}
	h.listNext()
	return waits
}

func stoppedBatch() *batch {
	done := make(chan struct{})
	close(done)
	return &batch{done: done, err: errStopped}
}

// listNext begins to list the next batch, unless enough are being listed. The caller holds mu.
func (h *Host) listNext() {
	b := h.own.next
	if b == nil || h.own.running >= maxBatches || h.own.stopped {
		return
	}
	h.own.next = nil
	h.own.running++
	life := h.own.life
	safego.Go(&h.own.work, "list spaces of the host", func() {
		b.errOf, b.err = h.listBatch(life, b.spaces)
		h.endBatch(b)
	}, func(err error) {
		b.err = err
		h.endBatch(b)
	})
}

// endBatch notes what is in the cache now.
func (h *Host) endBatch(b *batch) {
	h.own.mu.Lock()
	defer h.own.mu.Unlock()
	for _, space := range b.spaces {
		if own := h.own.of[space]; own != nil && own.batch == b { // else, it has left
			own.batch, own.cached = nil, b.err == nil && b.errOf[space] == nil
		}
	}
	close(b.done)
	h.own.running--
	h.listNext()
}

// listBatch lists what the host has of spaces. The first error is of all of them, and the others of single spaces.
func (h *Host) listBatch(ctx context.Context, spaces []string) (errOf map[string]error, err error) {
	var mu sync.Mutex
	var errs []error
	errOf = map[string]error{}
	list := func(resource string, f func() ([]string, error)) func() {
		return func() {
			lost, err := f()
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", resource, err))
			}
			for _, space := range lost {
				errOf[space] = fmt.Errorf("%s: %w", resource, errOvertaken)
			}
		}
	}
	work := []func(){list("disabled resources", func() ([]string, error) { return nil, h.findStaleOf(ctx, spaces) })}
	for name, r := range h.listedRouters() {
		work = append(work, list(name, func() ([]string, error) { return r.fill(ctx, spaces) }))
	}
	var running sync.WaitGroup
	slots := make(chan struct{}, maxLists)
	for _, f := range work {
		slots <- struct{}{}
		safego.Go(&running, "list spaces of the host", func() {
			defer func() { <-slots }()
			f()
		}, func(err error) {
			mu.Lock()
			defer mu.Unlock()
			errs = append(errs, err)
		})
	}
	running.Wait()
	return errOf, errors.Join(errs...)
}

// Disown reduces what is cached of spaces that have left this process, and have no syncer.
func (h *Host) Disown(spaces ...string) error { return h.BeginDisown(spaces...)() }

// BeginDisown is [Host.Disown] for callers that hold a lock under which a space is given a place: it returns at once,
// and the rest is done by the returned function.
func (h *Host) BeginDisown(spaces ...string) (reduce func() error) {
	if !h.OwnOnly {
		return func() error { return nil }
	}
	h.own.mu.Lock()
	defer h.own.mu.Unlock()
	for _, space := range spaces {
		delete(h.own.of, space)
	}
	return func() error {
		var errs []error
		for name, r := range h.allRouters() {
			for _, space := range spaces {
				if err := r.reduce(space); err != nil {
					errs = append(errs, fmt.Errorf("reduce what is cached of %s of space %s: %w", name, space, err))
				}
			}
		}
		h.forgetStaleOf(func(space string) bool { return slices.Contains(spaces, space) && !h.IsOwn(space) })
		return errors.Join(errs...)
	}
}

// startOwn makes spaces that become this process's from now on be listed. It returns a function that notes that those
// before are in the cache.
func (h *Host) startOwn(life context.Context) (filled func()) {
	h.own.mu.Lock()
	defer h.own.mu.Unlock()
	h.own.life = life
	noted := make([]*ownSpace, 0, len(h.own.of))
	for _, own := range h.own.of {
		noted = append(noted, own)
	}
	return func() {
		h.own.mu.Lock()
		defer h.own.mu.Unlock()
		for _, own := range noted {
			own.cached = true
		}
	}
}

// stopOwn waits for the lists under way, whose context has ended. There are no more after that.
func (h *Host) stopOwn() {
	h.own.mu.Lock()
	h.own.stopped = true
	if b := h.own.next; b != nil {
		h.own.next = nil
		b.err = errStopped
		close(b.done)
	}
	h.own.mu.Unlock()
	h.own.work.Wait()
}
