// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package platform

import (
	"context"
	"fmt"
	"sync"
)

// firstStarts are the first starts of the spaces in this run. Berth is ready without them: how long that takes must not
// depend on how many there are.
type firstStarts struct {
	listed, others []string       // names of spaces that have a place: of the configuration, and of earlier runs
	failures       []spaceFailure // of spaces of the configuration that have none, or not the one that it says
	done           chan struct{}  // closed when all of the configuration's have been tried
	err            error          // then: if none of them succeeded, and berth is not to run on
}

type spaceFailure struct {
	space string
	err   error
}

// beginFirstStarts begins them in the background. They end with berth.
func (p *Platform) beginFirstStarts(ctx context.Context) error {
	run, stop := context.WithCancel(context.WithoutCancel(ctx))
	p.starts.done = make(chan struct{})
	var work sync.WaitGroup
	work.Go(func() {
		defer close(p.starts.done)
		if p.starts.err = p.startListed(run); p.starts.err == nil {
			p.startOthers(run)
		}
	})
	p.onStop(func(context.Context) { stop(); work.Wait() })
	return nil
}

// startOthers has the spaces of earlier runs woken once, in the background.
func (p *Platform) startOthers(ctx context.Context) {
	for _, name := range p.starts.others {
		if ctx.Err() != nil {
			return
		}
		if err := p.writeKubeconfig(ctx, name); err != nil { // it may be long until it wakes
			p.logger.Error(err, "write kubeconfig", "space", name)
		}
		p.start(name)
	}
}

// startListed starts the spaces of the configuration, and says how that went. It returns an error if none of them starts, and
// one is to.
func (p *Platform) startListed(ctx context.Context) error {
	failures := make([]spaceFailure, len(p.starts.listed))
	var wg sync.WaitGroup
	for i, name := range p.starts.listed {
		process := p.processes.get(name)
		if process != nil {
			process.Start()
			wg.Go(func() {
				ctx, cancel := context.WithTimeout(ctx, startTimeout)
				defer cancel()
				if err := process.Await(ctx); err != nil {
					failures[i] = spaceFailure{name, err}
					return
				}
				p.config.Progress("Space %s is ready, in a process of its own", name)
			})
			continue
		}
		if err := p.shard.HeldBack(name); err != nil {
			p.config.Progress("Space %s is held back; the others serve: %v", name, err)
			// It is not prepared yet, but its clients are to learn why from it.
			if err := p.writeKubeconfig(ctx, name); err != nil {
				p.logger.Error(err, "write kubeconfig", "space", name)
			}
			continue
		}
		started := p.shard.BeginWake(name)
		wg.Go(func() {
			ctx, cancel := context.WithTimeoutCause(ctx, startTimeout, fmt.Errorf("not done within %s", startTimeout))
			defer cancel()
			if err := started(ctx); err != nil {
				failures[i] = spaceFailure{name, err}
				return
			}
			p.config.Progress("Space %s is ready", name)
		})
	}
	wg.Wait()
	if ctx.Err() != nil {
		return nil // interrupted while starting
	}
	failed := p.starts.failures
	for _, failure := range failures {
		if failure.err != nil {
			failed = append(failed, failure)
		}
	}
	if p.config.RequireOne && len(failed) > 0 && len(failed) == len(p.starts.listed)+len(p.starts.failures) {
		return failed[0].err
	}
	for _, failure := range failed {
		p.config.Progress("Space %s does not start, and is tried again; the others serve: %v", failure.space, failure.err)
	}
	return nil
}
