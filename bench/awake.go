// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/berth-dev/berth/bench/internal/probe"
	"github.com/berth-dev/berth/bench/internal/report"
)

const (
	// warmSpaces come before those that count: what a process makes once is not part of the slope.
	warmSpaces = 2
	// profileTime is how long CPU use is profiled.
	profileTime = 30 * time.Second
	// reasons is how many lines of a profile are shown.
	reasons = 10
)

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
	stock, err := s.get(ctx, stockSide)
	if err != nil {
		return err
	}
	peer, err := b.awakeStock(ctx, stock)
	if err != nil {
		return err
	}
	if err := s.end(stockSide); err != nil {
		return err
	}
	berth, err := s.get(ctx, berthSide)
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
	r.Add("goroutines_further", "goroutines", spaces.each.Goroutines, peer.each.Goroutines, report.Target{})
	r.Add("files_further", "files", spaces.each.Files, peer.each.Files, report.Target{})
	r.Add("rss_further_mib", "MiB", spaces.each.FreedRSSMiB, peer.each.FreedRSSMiB, report.Target{})
	for _, p := range []struct {
		name    string
		percent float64
	}{{"create_s", 50}, {"create_s_p99", 99}} {
		r.Add(p.name, "s", report.Percentile(spaces.creates, p.percent), report.Percentile(peer.creates, p.percent), report.AtMostShare(startTarget))
	}
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
	before, err := b.profiles(ctx, c, "before")
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
	after, err := b.profiles(ctx, c, "after")
	if err != nil {
		return a, err
	}
	if err := b.explainMemory(before, after, b.spaces); err != nil {
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

// profiles takes those that tell where memory is.
func (b *bench) profiles(ctx context.Context, c *child, when string) (map[string][]byte, error) {
	taken := map[string][]byte{}
	for _, kind := range []string{"heap", "goroutine"} {
		var data []byte
		if err := c.call(ctx, "Profile", ProfileArgs{Kind: kind}, &data); err != nil {
			return nil, err
		}
		taken[kind] = data
		if err := b.keepProfile(kind+"-"+when, data); err != nil {
			return nil, err
		}
	}
	return taken, nil
}

func (b *bench) keepProfile(name string, data []byte) error {
	if b.settings.profiles == "" {
		return nil
	}
	if err := os.WriteFile(filepath.Join(b.settings.profiles, name+".pb.gz"), data, 0o600); err != nil {
		return fmt.Errorf("-profiles: %w", err)
	}
	return nil
}

// explainMemory notes what the memory of each of n spaces is for.
func (b *bench) explainMemory(before, after map[string][]byte, n int) error {
	heap, err := grown(before["heap"], after["heap"], "inuse_space", probe.ByPackage)
	if err != nil {
		return err
	}
	b.note("live heap of an awake space, MiB by package", heap, 1/float64(n)/(1<<20))
	goroutines, err := grown(before["goroutine"], after["goroutine"], "goroutine", probe.ByOrigin)
	if err != nil {
		return err
	}
	b.note("goroutines of an awake space by what they are for", goroutines, 1/float64(n))
	return nil
}

// explainCPU notes what idle spaces are busy with.
func (b *bench) explainCPU(ctx context.Context, c *child) error {
	var data []byte
	if err := c.call(ctx, "Profile", ProfileArgs{Kind: cpuProfile, For: profileTime}, &data); err != nil {
		return err
	}
	if err := b.keepProfile(cpuProfile, data); err != nil {
		return err
	}
	for title, by := range map[string]grouping{"package": probe.ByPackage, "what it is for": probe.ByOrigin} {
		sums, err := by(data, "cpu")
		if err != nil {
			return err
		}
		b.note("CPU of idle spaces, milliseconds a second by "+title, probe.Grown(nil, sums), 1/float64(profileTime.Milliseconds())/1000)
	}
	return nil
}

// grouping adds up a profile.
type grouping func(data []byte, valueType string) (map[string]float64, error)

func grown(before, after []byte, valueType string, by grouping) ([]probe.Part, error) {
	old, err := by(before, valueType)
	if err != nil {
		return nil, err
	}
	now, err := by(after, valueType)
	if err != nil {
		return nil, err
	}
	return probe.Grown(old, now), nil
}

// note notes the greatest parts of a profile, each times scale.
func (b *bench) note(title string, parts []probe.Part, scale float64) {
	sum := probe.Sum(parts)
	b.report.Note("\n%s: %.4g in all", title, sum*scale)
	for _, p := range parts[:min(reasons, len(parts))] {
		b.report.Note("  %8.3f  %4.1f %%  %s", p.Value*scale, 100*p.Value/sum, p.Code)
	}
}
