// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"

	"github.com/berth-dev/berth/bench/internal/probe"
	"github.com/berth-dev/berth/bench/internal/report"
	"github.com/berth-dev/berth/bench/internal/side"
)

// warmSpaces come before those that count: what a process makes once is not part of the slope.
const warmSpaces = 2

// startTarget is a share of the stock server's start.
const startTarget = 0.25

// awake is what one side's control planes cost, awake and idle.
type awake struct {
	creates     []float64 // seconds each
	firstCreate float64
	first       probe.Footprint
	firstCPU    float64
	each        probe.Footprint
	cpu         float64 // cores, of all when there are most of them
}

// measureAwake measures what spaces cost with everything that belongs to them: API server, controllers, syncer. The first is the
// whole process with one control plane in it; a further one is the slope.
func measureAwake(ctx context.Context, b *bench, s *sides) error {
	stock, err := s.get(ctx, side.Stock)
	if err != nil {
		return err
	}
	peer, err := b.awakeStock(ctx, stock)
	if err != nil {
		return err
	}
	b.peerAwake, b.peerStarts = peer.each, peer.creates
	if err := s.end(side.Stock); err != nil {
		return err
	}
	berth, err := s.get(ctx, side.Berth)
	if err != nil {
		return err
	}
	spaces, err := b.awakeSpaces(ctx, berth)
	if err != nil {
		return err
	}
	r := &b.report
	r.Add("rss_awake_mib", "MiB", spaces.each.RSSMiB, peer.each.RSSMiB, report.AtMost(16))
	r.Add("heap_awake_mib", "MiB", spaces.each.HeapMiB, peer.each.HeapMiB, report.Target{})
	r.Add("stacks_awake_mib", "MiB", spaces.each.StackMiB, peer.each.StackMiB, report.Target{})
	r.Add("goroutines_further", "goroutines", spaces.each.Goroutines, peer.each.Goroutines, report.Target{})
	r.Add("files_further", "files", spaces.each.Files, peer.each.Files, report.Target{})
	r.Add("rss_further_mib", "MiB", spaces.each.FreedRSSMiB, peer.each.FreedRSSMiB, report.Target{})
	b.addStarts("create_s", spaces.creates, peer.creates)
	// A stock server is idle by itself: that many would need that many times as much.
	r.Add("idle_cpu_cores_100", "cores", spaces.cpu/float64(len(spaces.creates)+1)*100, peer.cpu/float64(b.stockSpaces)*100, report.AtMost(0.1))
	r.Add("create_first_s", "s", spaces.firstCreate, peer.firstCreate, report.Target{})
	r.Add("rss_first_mib", "MiB", spaces.first.FreedRSSMiB, peer.first.FreedRSSMiB, report.Target{})
	r.Add("goroutines_first", "goroutines", spaces.first.Goroutines, peer.first.Goroutines, report.Target{})
	r.Add("idle_cpu_cores_first", "cores", spaces.firstCPU, peer.firstCPU, report.Target{})
	r.Note("rss_awake_mib: slope over %d spaces, idle_cpu_cores_100: of %d; stock's over %d", b.spaces, b.idleSpaces, b.stockSpaces)
	if !spaces.each.Steady || !peer.each.Steady {
		r.Note("rss_awake_mib: berth steady: %t, stock steady: %t within %s", spaces.each.Steady, peer.each.Steady, b.settle)
	}
	return nil
}

func (b *bench) awakeStock(ctx context.Context, c *child) (a awake, err error) {
	if err := b.awakeFirst(ctx, c, &a); err != nil {
		return a, err
	}
	if err := b.awakeMore(ctx, c, &a, b.stockSpaces); err != nil {
		return a, err
	}
	all, err := b.rest(ctx, c)
	if err != nil {
		return a, err
	}
	a.each = all.Minus(a.first, b.stockSpaces)
	var cpu float64
	if err := c.call(ctx, "CPU", b.idle, &cpu); err != nil {
		return a, err
	}
	a.cpu = cpu - a.firstCPU
	return a, nil
}

func (b *bench) awakeSpaces(ctx context.Context, c *child) (a awake, err error) {
	if err := b.awakeFirst(ctx, c, &a); err != nil {
		return a, err
	}
	if err := b.awakeMore(ctx, c, &a, warmSpaces-1); err != nil {
		return a, err
	}
	warm, err := b.rest(ctx, c)
	if err != nil {
		return a, err
	}
	before, err := b.profile(ctx, c, "before")
	if err != nil {
		return a, err
	}
	if err := b.awakeMore(ctx, c, &a, b.spaces); err != nil {
		return a, err
	}
	all, err := b.rest(ctx, c)
	if err != nil {
		return a, err
	}
	a.each = all.Minus(warm, b.spaces)
	after, err := b.profile(ctx, c, "after")
	if err != nil {
		return a, err
	}
	if err := b.explainMemory("an awake space", before, after, b.spaces); err != nil {
		return a, err
	}
	if err := b.awakeMore(ctx, c, &a, b.idleSpaces-b.spaces-warmSpaces); err != nil {
		return a, err
	}
	if _, err := b.rest(ctx, c); err != nil {
		return a, err
	}
	if err := c.call(ctx, "CPU", b.idle, &a.cpu); err != nil {
		return a, err
	}
	b.say("%d idle spaces: %.3f cores", len(a.creates)+1, a.cpu)
	return a, b.explainCPU(ctx, c)
}

// awakeFirst starts the first control plane of a process and measures it.
func (b *bench) awakeFirst(ctx context.Context, c *child, a *awake) (err error) {
	if _, a.firstCreate, err = c.start(ctx, "bench-first"); err != nil {
		return err
	}
	if a.first, err = b.rest(ctx, c); err != nil {
		return err
	}
	return c.call(ctx, "CPU", b.idle/3, &a.firstCPU)
}

// awakeMore starts n control planes, one after the other.
func (b *bench) awakeMore(ctx context.Context, c *child, a *awake, n int) error {
	b.say("%s: starting %d", c.side, n)
	for range n {
		_, seconds, err := c.start(ctx, fmt.Sprintf("bench-%d", len(a.creates)))
		if err != nil {
			return err
		}
		a.creates = append(a.creates, seconds)
	}
	return nil
}

// rest measures a child at rest.
func (b *bench) rest(ctx context.Context, c *child) (probe.Footprint, error) {
	b.say("%s: waiting until it is steady", c.side)
	f, err := c.rest(ctx, b.settle)
	b.say("%s: RSS %.0f MiB, %.0f when freed, live heap %.0f MiB, %.0f goroutines, %.0f files, steady: %t",
		c.side, f.RSSMiB, f.FreedRSSMiB, f.HeapMiB, f.Goroutines, f.Files, f.Steady)
	return f, err
}
