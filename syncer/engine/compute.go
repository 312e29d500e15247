// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/berth-dev/berth/internal/timeshare"
)

const (
	// computeShare is how long a space's syncer may compute in each second, after a burst of computeAtOnce. One change
	// of a Service, NetworkPolicy, or Namespace can make it process tens of thousands of objects, for milliseconds
	// each, and a tenant can make such changes continuously.
	computeShare  = 500 * time.Millisecond
	computeAtOnce = 2 * time.Second
)

// computing lets a space's syncer use one processor at a time, within its share. It is safe for concurrent use.
type computing struct {
	clock clock.PassiveClock
	share *timeshare.Share

	mu sync.Mutex
}

func newComputing(c clock.PassiveClock) *computing {
	return &computing{clock: c, share: timeshare.New(computeShare, computeAtOnce)}
}

// Compute runs work within the space's share; see [computing.compute].
func (s *Engine) Compute(ctx context.Context, work func()) { s.processor.compute(ctx, work) }

// compute runs work, which must not block. Then it waits until the syncer may continue, or ctx ends.
func (c *computing) compute(ctx context.Context, work func()) {
	_ = c.share.Worked(ctx, c.alone(work)) // the work is done; the caller notices that ctx has ended
}

func (c *computing) alone(work func()) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	begun := c.clock.Now()
	work()
	return c.clock.Since(begun)
}
