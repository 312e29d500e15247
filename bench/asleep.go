// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berth-dev/berth/bench/internal/probe"
	"github.com/berth-dev/berth/bench/internal/report"
	"github.com/berth-dev/berth/bench/internal/side"
)

const (
	// warmSleepers come before those that count: what a process keeps once it has had spaces awake is not part of the slope. The
	// heap that Go keeps grows for the first hundred, as what they leave lies scattered in it, and hardly after.
	warmSleepers = 100
	// givenBack is when a shard, at the latest, has given back the memory of spaces that went to sleep.
	givenBack = 25 * time.Second
	// workers is how many spaces are created and put to sleep at once.
	workers = 3
	// quietTries is how often what has been put to sleep may wake before it counts as not sleeping.
	quietTries = 10
	// sleepAgain is when one that woke by itself is put to sleep by the shard, so that few are awake at once.
	sleepAgain = 5 * time.Second
	// sleepersRate is of how many bytes one is profiled: sleepers leave little.
	sleepersRate = 512
	// sayEvery is how many spaces are between two lines of progress.
	sayEvery = 100
)

var errRestless = errors.New("spaces did not stay asleep, though nobody used them")

// measureAsleep measures what sleeping spaces cost, each of which was created, written to and put to sleep, and how long a
// request to one is held until it is answered.
func measureAsleep(ctx context.Context, b *bench, s *sides) error {
	s.idleAfter = sleepAgain
	// As in `berth up`: the profiler's records of who allocates grow with each space that was ever awake.
	// With -profiles they are what is wanted.
	rate := 0
	if b.profiles != "" {
		rate = sleepersRate
	}
	s.env = append(s.env, fmt.Sprintf("GODEBUG=memprofilerate=%d", rate))
	berth, err := s.get(ctx, side.Berth)
	if err != nil {
		return err
	}
	warmers, err := b.putToSleep(ctx, berth, 0, warmSleepers)
	if err != nil {
		return err
	}
	warm, err := b.restAsleep(ctx, berth, warmers)
	if err != nil {
		return err
	}
	if err := b.keepProfiles(ctx, berth, "asleep-before"); err != nil {
		return err
	}
	sleepers, err := b.putToSleep(ctx, berth, warmSleepers, b.asleep)
	if err != nil {
		return err
	}
	all, err := b.restAsleep(ctx, berth, append(warmers, sleepers...))
	if err != nil {
		return err
	}
	if err := b.keepProfiles(ctx, berth, "asleep-after"); err != nil {
		return err
	}
	each := all.Minus(warm, b.asleep)
	r := &b.report
	const kib = 1 << 10
	r.Add("rss_asleep_kib", "KiB", each.RSSMiB*kib, b.peerAwake.RSSMiB*kib, report.AtMost(32))
	r.Add("rss_asleep_freed_kib", "KiB", each.FreedRSSMiB*kib, b.peerAwake.FreedRSSMiB*kib, report.Target{})
	r.Add("heap_asleep_kib", "KiB", each.HeapMiB*kib, b.peerAwake.HeapMiB*kib, report.Target{})
	r.Add("heap_unused_asleep_kib", "KiB", each.UnusedMiB*kib, b.peerAwake.UnusedMiB*kib, report.Target{})
	r.Add("goroutines_asleep", "goroutines", each.Goroutines, b.peerAwake.Goroutines, report.Target{})
	r.Add("files_asleep", "files", each.Files, b.peerAwake.Files, report.Target{})
	r.Note("rss_asleep_kib: slope over %d spaces, each of which was awake once; stock can't sleep: its figure is of one awake", b.asleep)
	return b.measureWakes(ctx, s, sleepers)
}

// measureWakes wakes some of the sleepers, one after the other, each by a request.
func (b *bench) measureWakes(ctx context.Context, s *sides, sleepers []*plane) error {
	b.say("waking %d", b.wakes)
	var seconds []float64
	for i := range b.wakes {
		p := sleepers[i%len(sleepers)]
		took, err := p.firstAnswer(ctx)
		if err != nil {
			return fmt.Errorf("wake %s: %w", p.name, err)
		}
		seconds = append(seconds, took.Seconds())
		if err := p.sleep(ctx); err != nil {
			return err
		}
	}
	stock, err := b.stockStarts(ctx, s)
	if err != nil {
		return err
	}
	b.addStarts("wake_s", seconds, stock)
	return nil
}

// addStarts adds what is shown of the seconds that starts took.
func (b *bench) addStarts(name string, berth, stock []float64) {
	b.report.Add(name, "s", report.Percentile(berth, 50), report.Percentile(stock, 50), report.AtMostShare(startTarget))
	b.report.Add(name+"_p99", "s", report.Percentile(berth, 99), report.Percentile(stock, 99), report.AtMostShare(startTarget))
	b.report.Note("%s: of %d, %.3g to %.3g; stock's of %d, %.3g to %.3g", name, len(berth), slices.Min(berth), slices.Max(berth),
		len(stock), slices.Min(stock), slices.Max(stock))
}

// stockStarts are the seconds that stock servers took to start, one after the other in one process.
func (b *bench) stockStarts(ctx context.Context, s *sides) ([]float64, error) {
	if len(b.peerStarts) > 0 {
		return b.peerStarts, nil
	}
	stock, err := s.get(ctx, side.Stock)
	if err != nil {
		return nil, err
	}
	for i := range b.stockSpaces {
		_, seconds, err := stock.start(ctx, fmt.Sprintf("bench-%d", i))
		if err != nil {
			return nil, err
		}
		b.peerStarts = append(b.peerStarts, seconds)
	}
	return b.peerStarts, s.end(side.Stock)
}

// putToSleep creates n spaces, a few at once, and puts each to sleep.
func (b *bench) putToSleep(ctx context.Context, c *child, first, n int) ([]*plane, error) {
	b.say("creating %d spaces and putting them to sleep", n)
	planes, errs := make([]*plane, n), make([]error, workers)
	var done atomic.Int64
	var wg sync.WaitGroup
	for worker := range workers {
		wg.Go(func() {
			for i := worker; i < n && errs[worker] == nil; i += workers {
				planes[i], _, errs[worker] = c.start(ctx, fmt.Sprintf("bench-%d", first+i))
				if errs[worker] == nil {
					errs[worker] = planes[i].sleep(ctx)
				}
				if d := done.Add(1); d%sayEvery == 0 {
					b.say("%d of %d sleep", d, n)
				}
			}
		})
	}
	wg.Wait()
	return planes, errors.Join(errs...)
}

// restAsleep measures a child at rest while all its spaces sleep. Changes on the host wake some that are new: to sleep again.
func (b *bench) restAsleep(ctx context.Context, c *child, planes []*plane) (f probe.Footprint, err error) {
	for range quietTries {
		for _, p := range planes {
			if err := p.sleep(ctx); err != nil {
				return f, err
			}
		}
		select {
		case <-time.After(givenBack):
		case <-ctx.Done():
			return f, context.Cause(ctx)
		}
		if f, err = b.rest(ctx, c); err != nil {
			return f, err
		}
		var awake int
		if err := c.call(ctx, "Awake", struct{}{}, &awake); err != nil || awake == 0 {
			return f, err
		}
		b.say("%d spaces woke by themselves meanwhile; once more", awake)
	}
	return f, errRestless
}

// sleep puts the space to sleep.
func (p *plane) sleep(ctx context.Context) error {
	return p.child.call(ctx, "Sleep", p.name, new(struct{}))
}

// firstAnswer is how long a request takes that may find the space asleep, with the connection that it needs.
func (p *plane) firstAnswer(ctx context.Context) (time.Duration, error) {
	client, disconnect, err := p.client()
	if err != nil {
		return 0, err
	}
	defer disconnect()
	begin := time.Now()
	_, err = client.CoreV1().ConfigMaps(metav1.NamespaceDefault).Get(ctx, firstWrite, metav1.GetOptions{})
	return time.Since(begin), err
}

const (
	// templates is how many spaces are created and used. The others are copies of them.
	templates = 40
	// firstAnswers is how many spaces are asked after the start.
	firstAnswers = 10
	// sleepersAwake is how many spaces may be awake at once: those that are asked, and a few that the shard wakes after its start. They are
	// as many in both starts, so that they are no part of the difference.
	sleepersAwake = firstAnswers + 6
)

// measureSleepers starts a shard with many sleeping spaces.
func measureSleepers(ctx context.Context, b *bench, s *sides) error {
	s.idleAfter = sleepAgain
	s.env = append(s.env, "GODEBUG=memprofilerate=0") // as `berth serve` does
	set, err := s.shards(ctx, "sleepers")
	if err != nil {
		return err
	}
	shard := set.children["sleepers"]
	names, spaces := make([]string, templates), make([]*plane, templates)
	b.say("sleepers: creating %d spaces", templates)
	group, creating := errgroup.WithContext(ctx)
	group.SetLimit(workers)
	for i := range names {
		group.Go(func() (err error) {
			names[i] = fmt.Sprintf("template-%03d", i)
			spaces[i], _, err = shard.start(creating, names[i])
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	// The first start is of the templates alone: what a shard takes anyway.
	few, _, err := b.startSleepers(ctx, shard, spaces, side.MultiplyArgs{SpacesMax: sleepersAwake})
	if err != nil {
		return err
	}
	b.say("sleepers: making %d copies", b.sleepers-templates)
	many, starts, err := b.startSleepers(ctx, shard, spaces, side.MultiplyArgs{Templates: names, Copies: b.sleepers - templates, SpacesMax: sleepersAwake})
	if err != nil {
		return err
	}
	each := many.Minus(few, b.sleepers-templates)
	const kib = 1 << 10
	r := &b.report
	r.Add("asleep_10000_mib", "MiB", many.RSSMiB, 0, report.Target{})
	r.Add("asleep_10000_each_kib", "KiB", each.RSSMiB*kib, 0, report.AtMost(32))
	r.Add("asleep_10000_heap_each_kib", "KiB", each.HeapMiB*kib, 0, report.Target{})
	r.Add("restart_10000_s", "s", starts.ready.Seconds(), 0, report.AtMost(5))
	r.Add("restart_10000_first_s", "s", slices.Max(starts.first), 0, report.Target{})
	r.Note("asleep_10000_mib: %d sleeping spaces, %d of which are copies, which have no host objects; a shard with %d takes %.4g MiB; goroutines %.0f and %.0f, files %.0f and %.0f",
		b.sleepers, b.sleepers-templates, templates, few.RSSMiB, few.Goroutines, many.Goroutines, few.Files, many.Files)
	r.Note("restart_10000_first_s: from the start until the answers of %d spaces, each of which woke for it, one after the other: %.3g s until the first", firstAnswers, starts.first[0])
	return nil
}

// sleeperStarts is how long a start took: until the shard was ready, and until each of some spaces, one after the other, had answered.
type sleeperStarts struct {
	ready time.Duration
	first []float64 // seconds
}

// startSleepers stops a shard, makes copies of its spaces, starts it, and measures it when it is ready and some spaces have answered.
func (b *bench) startSleepers(ctx context.Context, shard *child, spaces []*plane, copies side.MultiplyArgs) (f probe.Footprint, starts sleeperStarts, err error) {
	if err := shard.call(ctx, "Multiply", copies, new(struct{})); err != nil {
		return f, starts, err
	}
	began := time.Now()
	restart := func(int) (seconds float64, err error) {
		err = shard.call(ctx, "Restart", struct{}{}, &starts.ready)
		return starts.ready.Seconds(), err
	}
	if b.profiles != "" && copies.Copies > 0 {
		err = b.profileOnce(ctx, "restart_10000_s", shard, 0, restart)
	} else {
		_, err = restart(0)
	}
	if err != nil {
		return f, starts, err
	}
	for i := range firstAnswers {
		if _, err := spaces[i*len(spaces)/firstAnswers].firstAnswer(ctx); err != nil {
			return f, starts, err
		}
		starts.first = append(starts.first, time.Since(began).Seconds())
	}
	b.say("sleepers: ready after %.3g s; the first answer came after %.3g s", starts.ready.Seconds(), starts.first[0])
	err = shard.call(ctx, "Now", struct{}{}, &f)
	return f, starts, err
}
