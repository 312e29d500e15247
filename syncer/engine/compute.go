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
	// computeShare is how long a space's syncer may compute in a second, once it has done that for computeAtOnce. One change of a
	// Service, a NetworkPolicy, or a Namespace can have it look at tens of thousands of objects again, at each for
	// milliseconds, and a tenant can make such changes without an end.
	computeShare  = 500 * time.Millisecond
	computeAtOnce = 2 * time.Second
)

// computing lets a space's syncer use one processor at a time, and that not for longer than its share. It is safe for
// concurrent use.
type computing struct {
	clock clock.PassiveClock
	share *timeshare.Share

	mu sync.Mutex
}

func newComputing(c clock.PassiveClock) *computing {
	return &computing{clock: c, share: timeshare.New(computeShare, computeAtOnce)}
}

// Compute is [computing.compute] for the space.
func (s *Engine) Compute(ctx context.Context, work func()) { s.processor.compute(ctx, work) }

// compute does work that waits for nothing, and then waits until the syncer may go on, or ctx ends.
func (c *computing) compute(ctx context.Context, work func()) {
	_ = c.share.Worked(ctx, c.alone(work)) // the work is done; what follows sees that ctx has ended
}

func (c *computing) alone(work func()) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	begun := c.clock.Now()
	work()
	return c.clock.Since(begun)
}
