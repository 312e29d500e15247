// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/berth-dev/berth/bench/internal/load"
)

// table is what became of all requests, by space.
type table map[string]load.Stats

func (t table) add(taken map[string]load.Stats) {
	for space, more := range taken {
		sum := t[space]
		sum.Add(more)
		t[space] = sum
	}
}

func (t table) sum() (all load.Stats) {
	for _, s := range t {
		all.Add(s)
	}
	return all
}

// failed returns errFailed if a request failed, with the first error.
func (t table) failed() error {
	if all := t.sum(); all.Failed > 0 {
		return fmt.Errorf("%d %w, the first one with: %w", all.Failed, errFailed, all.FirstFailure)
	}
	return nil
}

// wait waits until ctx ends or a time has passed, and then prints what became of the requests since. It doesn't print if every is 0.
func (t table) wait(ctx context.Context, every time.Duration, running *load.Load, began time.Time) {
	var tick <-chan time.Time
	if every > 0 {
		timer := time.NewTimer(every)
		defer timer.Stop()
		tick = timer.C
	}
	select {
	case <-ctx.Done():
	case <-tick:
		taken := running.Take()
		s := table(taken).sum()
		fmt.Fprintf(os.Stderr, "[%4.0fs] %d requests, %d failed, %d held, p99 %s, longest %s\n", time.Since(began).Seconds(),
			s.Requests, s.Failed, s.Held, rounded(s.Percentile(99)), rounded(s.Longest))
		t.add(taken)
	}
}

// write prints a line for each space, and one for all.
func (t table) write(to io.Writer) error {
	w := tabwriter.NewWriter(to, 0, 8, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "space\trequests\tfailed\theld\tp50\tp99\tlongest\t")
	line := func(name string, s load.Stats) {
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%s\t%s\t%s\t\n", name, s.Requests, s.Failed, s.Held, rounded(s.Percentile(50)), rounded(s.Percentile(99)), rounded(s.Longest))
	}
	for _, space := range slices.Sorted(maps.Keys(t)) {
		line(space, t[space])
	}
	line("all", t.sum())
	return w.Flush()
}

func rounded(d time.Duration) time.Duration { return d.Round(d / 1000).Round(10 * time.Microsecond) }
