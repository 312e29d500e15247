// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/internal/safego"
	"github.com/berth-dev/berth/platform/datadir"
	"github.com/berth-dev/berth/platform/spaceobjects"
	"github.com/berth-dev/berth/snapshot"
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

// openObjects has the host hold what the configuration says of spaces, and watches the objects of all spaces.
func (m *Manager) openObjects(ctx context.Context) (err error) {
	if m.objects, err = spaceobjects.Open(m.env.Host, m.config.PlatformName); err != nil {
		return err
	}
	if m.config.SpaceRole == "" { // otherwise, the chart that installed the role installs the definitions, too
		if err := m.objects.Define(ctx); err != nil {
			return err
		}
	}
	listed := make([]error, len(m.config.Spaces))
	var applying sync.WaitGroup
	slots := make(chan struct{}, spaceobjects.Reconcilers)
	for i := range m.config.Spaces {
		slots <- struct{}{}
		safego.Go(&applying, "apply a Space object", func() {
			defer func() { <-slots }()
			listed[i] = m.Ensure(ctx, &m.config.Spaces[i])
		}, func(err error) { listed[i] = err })
	}
	applying.Wait()
	for i, failure := range listed {
		if space := &m.config.Spaces[i]; failure != nil {
			m.starts.failures = append(m.starts.failures, spaceFailure{space.Name, failure})
			m.unapplied.Store(space.Name, space)
			m.objects.Queue.AddRateLimited(space.Name)
		}
	}
	stop, err := m.objects.Watch(ctx)
	if err != nil {
		return err
	}
	m.undoOpen.add(func(context.Context) { stop() })
	return nil
}

// openSpaces gives all spaces that have an object their places, asleep. So none is missed once requests are served.
func (m *Manager) openSpaces(ctx context.Context) error {
	m.undoOpen.add(m.stopDedicated)
	sending, stopSending := context.WithCancel(context.WithoutCancel(ctx))
	m.sending = sending
	m.undoOpen.add(func(context.Context) {
		stopSending() // a process that doesn't answer must not delay the end
		m.sends.Wait()
		m.syncSends.Wait()
		m.examining.Wait()
	})
	if err := m.startPublications(ctx); err != nil {
		return err
	}
	m.shareDefinitions(ctx)
	if err := m.followSyncs(ctx); err != nil {
		return err
	}
	starts, isListed := &m.starts, map[string]bool{}
	for i := range m.config.Spaces {
		isListed[m.config.Spaces[i].Name] = true
	}
	for _, object := range slices.SortedFunc(slices.Values(m.objects.All()), byName) {
		if object.Annotations[translate.AnnotationStore] == "" || !m.owns(object) || !object.DeletionTimestamp.IsZero() ||
			snapshot.IsReceived(datadir.Space(m.config.DataDir, object.Name)) && !m.goesOnInPod(object.Name) { // whose check may take minutes
			continue // reconcile sees to it
		}
		m.noteObject(object)
		isNew, err := m.run(ctx, object)
		switch {
		case err != nil && isListed[object.Name]:
			starts.failures = append(starts.failures, spaceFailure{object.Name, err})
		case err != nil:
			m.logger.Error(err, "Could not apply the spec of a space; Berth retries", "space", object.Name)
		}
		switch {
		case isNew && isListed[object.Name]:
			starts.listed = append(starts.listed, object.Name)
		case isNew:
			starts.others = append(starts.others, object.Name)
		}
	}
	return nil
}

func byName(a, b *v1alpha1.Space) int { return strings.Compare(a.Name, b.Name) }

// Ensure has the host hold the object of a space, as the configuration says it. It returns once the object is there; the status
// of the object says what comes of it. It fails if the object of that name is another platform's.
func (m *Manager) Ensure(ctx context.Context, space *v1alpha1.Space) error {
	if m.config.Shard != "" {
		return m.ensureOnShard(ctx, space)
	}
	return m.ensureHere(ctx, space)
}

// ensureHere has the object of a space, whose store is in this process's data directory, say what the configuration says.
func (m *Manager) ensureHere(ctx context.Context, space *v1alpha1.Space) error {
	if err := errors.Join(m.takeBack(space.Name), m.countMoves(ctx, space.Name)); err != nil {
		return err
	}
	store, err := datadir.StoreID(m.config.DataDir, space.Name)
	if err == nil {
		err = m.objects.Apply(ctx, space, store)
	}
	return err
}

// ensureObject creates the object of a space that is on disk, unless it is there.
func (m *Manager) ensureObject(ctx context.Context, space string) error {
	if err := m.countMoves(ctx, space); err != nil {
		return err
	}
	store, err := datadir.StoreID(m.config.DataDir, space)
	if err == nil {
		err = m.objects.Ensure(ctx, space, store)
	}
	return err
}

// beginFirstStarts begins them in the background. They end with berth.
func (m *Manager) beginFirstStarts(ctx context.Context) error {
	run, stop := context.WithCancel(context.WithoutCancel(ctx))
	m.starts.done = make(chan struct{})
	var work sync.WaitGroup
	work.Go(func() {
		defer close(m.starts.done)
		if m.starts.err = m.startListed(run); m.starts.err == nil {
			m.startOthers(run)
		}
	})
	m.undoStart.add(func(context.Context) { stop(); work.Wait() })
	return nil
}

// startOthers has the spaces of earlier runs woken once, in the background.
func (m *Manager) startOthers(ctx context.Context) {
	for _, name := range m.starts.others {
		if ctx.Err() != nil {
			return
		}
		end, err := m.changes.Begin(name, "being started")
		if err != nil {
			m.start(name) // which does nothing if it is being deleted
			continue
		}
		if m.applied.get(name) != nil {
			if err := m.writeKubeconfig(ctx, name); err != nil { // it may be long until it wakes
				m.logger.Error(err, "Could not write the kubeconfig of a space", "space", name)
			}
			m.start(name)
		}
		end()
	}
}

// startListed starts the spaces of the configuration, and says how that went. It returns an error if none of them starts, and
// one is to.
func (m *Manager) startListed(ctx context.Context) error {
	failures := make([]spaceFailure, len(m.starts.listed))
	var wg sync.WaitGroup
	for i, name := range m.starts.listed {
		process := m.processes.get(name)
		if process != nil {
			process.Start()
			wg.Go(func() {
				ctx, cancel := context.WithTimeout(ctx, startTimeout)
				defer cancel()
				if err := process.Await(ctx); err != nil {
					failures[i] = spaceFailure{name, err}
					return
				}
				m.config.Progress("Space %s is ready, in a process of its own", name)
			})
			continue
		}
		if err := m.shard.HeldBack(name); err != nil {
			m.config.Progress("Space %s is held back; the others serve: %v", name, err)
			// It is not prepared yet, but its clients are to learn why from it.
			if err := m.writeKubeconfig(ctx, name); err != nil {
				m.logger.Error(err, "Could not write the kubeconfig of a space", "space", name)
			}
			continue
		}
		started := m.shard.BeginWake(name)
		wg.Go(func() {
			ctx, cancel := context.WithTimeoutCause(ctx, startTimeout, fmt.Errorf("not done within %s", startTimeout))
			defer cancel()
			if err := started(ctx); err != nil {
				failures[i] = spaceFailure{name, err}
				return
			}
			m.config.Progress("Space %s is ready", name)
		})
	}
	wg.Wait()
	if ctx.Err() != nil {
		return nil // interrupted while starting
	}
	failed := m.starts.failures
	for _, failure := range failures {
		if failure.err != nil {
			failed = append(failed, failure)
		}
	}
	if m.config.RequireOne && len(failed) > 0 && len(failed) == len(m.starts.listed)+len(m.starts.failures) {
		return failed[0].err
	}
	for _, failure := range failed {
		m.config.Progress("Space %s does not start, and Berth retries; the other spaces are ready: %v", failure.space, failure.err)
	}
	return nil
}
