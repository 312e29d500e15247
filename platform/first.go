// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package platform

import (
	"context"
	"sync"
)

// firstStarts are the first starts of the spaces in this run. Berth is ready
// without them: how long that takes must not depend on how many there are.
type firstStarts struct {
	each    []func(ctx context.Context) // set before they begin
	done    chan struct{}               // closed when all have ended
	failure error                       // then: if none succeeded, and berth is not to run on
}

// beginFirstStarts begins them in the background. They end with berth.
func (p *Platform) beginFirstStarts(ctx context.Context) error {
	run, stop := context.WithCancel(context.WithoutCancel(ctx))
	go func() {
		defer close(p.first.done)
		var wg sync.WaitGroup
		for _, start := range p.first.each {
			wg.Go(func() { start(run) })
		}
		wg.Wait()
	}()
	p.onStop(func(context.Context) { stop(); <-p.first.done })
	return nil
}
