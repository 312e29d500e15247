// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package platform

import (
	"context"
	"fmt"
	"sync"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/internal/safego"
	"github.com/berth-dev/berth/translate"
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

// openSpaces has the host hold what the configuration says of spaces, and gives all spaces that have an object their places,
// asleep. So none is missed once requests are served.
func (p *Platform) openSpaces(ctx context.Context) error {
	p.onStop(p.stopDedicated)
	if p.config.SpaceRole == "" { // otherwise, the chart that installed the role installs the definitions, too
		if err := p.objects.define(ctx); err != nil {
			return err
		}
	}
	listed := make([]error, len(p.config.Spaces))
	var applying sync.WaitGroup
	slots := make(chan struct{}, reconcilers)
	for i := range p.config.Spaces {
		slots <- struct{}{}
		safego.Go(&applying, "apply a Space object", func() {
			defer func() { <-slots }()
			listed[i] = p.applyListed(ctx, &p.config.Spaces[i])
		}, func(err error) { listed[i] = err })
	}
	applying.Wait()
	all, err := p.objects.list(ctx)
	if err != nil {
		return err
	}
	starts, isListed := firstStarts{}, map[string]bool{}
	for i := range p.config.Spaces {
		space := &p.config.Spaces[i]
		isListed[space.Name] = true
		if listed[i] != nil {
			starts.failures = append(starts.failures, spaceFailure{space.Name, listed[i]})
			p.unapplied.Store(space.Name, space)
			p.objects.queue.AddRateLimited(space.Name)
		}
	}
	for i := range all {
		object := &all[i]
		if object.Annotations[translate.AnnotationStore] == "" || !p.owns(object) || !object.DeletionTimestamp.IsZero() {
			continue // reconcile sees to it
		}
		isNew, err := p.run(object)
		switch {
		case err != nil && isListed[object.Name]:
			starts.failures = append(starts.failures, spaceFailure{object.Name, err})
		case err != nil:
			p.logger.Error(err, "Could not apply the spec of a space; it is tried again", "space", object.Name)
		}
		switch {
		case isNew && isListed[object.Name]:
			starts.listed = append(starts.listed, object.Name)
		case isNew:
			starts.others = append(starts.others, object.Name)
		}
	}
	p.starts = starts
	return nil
}

// applyListed has the host hold the object of a space that the configuration names.
func (p *Platform) applyListed(ctx context.Context, space *v1alpha1.Space) error {
	if err := takeBack(p.config.DataDir, space.Name); err != nil {
		return err
	}
	store, err := p.storeID(space.Name)
	if err == nil {
		err = p.objects.apply(ctx, space, store)
	}
	return err
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
		end, err := p.changes.begin(name, "being started")
		if err != nil {
			p.start(name) // which does nothing if it is being deleted
			continue
		}
		if p.applied.get(name) != nil {
			if err := p.writeKubeconfig(ctx, name); err != nil { // it may be long until it wakes
				p.logger.Error(err, "write kubeconfig", "space", name)
			}
			p.start(name)
		}
		end()
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
