// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"context"
	"runtime"
	"slices"
	"time"
)

const (
	// settlePoll is how often a process that settles is looked at.
	settlePoll = time.Second
	// settleWindow is for how many looks it has to be steady.
	settleWindow = 12
	// steadyShare is how much memory and goroutines may differ in them: more is a process that still starts, or still gives
	// memory back. It is what the figures are good to.
	steadyShare = 0.005
)

// settle waits until memory and goroutines have not moved for a while, and says whether that came about within limit.
//
// It first collects garbage, and leaves it to Go to give the memory back. Go forces a collection every two minutes in a process
// at rest: doing it now only saves the time.
func settle(ctx context.Context, limit time.Duration) (steady bool, err error) {
	collect()
	var rss, goroutines []float64
	for end := time.Now().Add(limit); time.Now().Before(end); {
		if err := wait(ctx, settlePoll); err != nil {
			return false, err
		}
		now, _, err := resident()
		if err != nil {
			return false, err
		}
		rss, goroutines = append(rss, now), append(goroutines, float64(runtime.NumGoroutine()))
		if isSteady(rss) && isSteady(goroutines) {
			return true, nil
		}
	}
	return false, nil
}

// isSteady tells whether the last values are as good as equal.
func isSteady(values []float64) bool {
	if len(values) < settleWindow {
		return false
	}
	last := values[len(values)-settleWindow:]
	return slices.Max(last)-slices.Min(last) <= steadyShare*slices.Max(last)
}
