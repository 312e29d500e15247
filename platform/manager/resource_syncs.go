// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/berth-dev/berth/isolation"
	"github.com/berth-dev/berth/platform/repairs"
	"github.com/berth-dev/berth/platform/resourcesyncs"
	"github.com/berth-dev/berth/platform/spaceprocess"
	"github.com/berth-dev/berth/shard"
	"github.com/berth-dev/berth/shard/dedicated"
	"github.com/berth-dev/berth/syncer/declaration"
)

// newSyncs returns the ResourceSyncs, of which nothing was read yet.
func (m *Manager) newSyncs() *resourcesyncs.Syncs {
	secure := isolation.CheckSync // a chart has installed what is checked
	if m.config.SpaceRole == "" {
		secure = isolation.InstallSync
	}
	return resourcesyncs.New(resourcesyncs.Options{
		Forces: m.crdShares.Forces, ForcedIn: m.crdShares.ForcedIn,
		Secure:        func(ctx context.Context, d *declaration.Declaration) error { return secure(ctx, m.hostClient, d) },
		Missing:       func(err error) bool { return errors.Is(err, isolation.ErrSyncPolicy) },
		Declare:       func(all []*declaration.Declaration) error { return m.shard.Host().Declare(all) },
		DeclaredReady: func(name string) error { return m.shard.Host().DeclaredReady(name) },
		Logger:        m.logger,
	})
}

// followSyncs reads and watches the ResourceSyncs. It waits for them, so that no space starts without what is synced of it.
func (m *Manager) followSyncs(ctx context.Context) error {
	config := rest.CopyConfig(m.env.Host)
	config.QPS = -1 // the host's API priority and fairness limits the requests
	objects, err := metadata.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("make host client of custom resources: %w", err)
	}
	m.syncChanges = resourcesyncs.NewChanges(m.logger)
	m.undoOpen.add(func(context.Context) { m.syncChanges.Close() })
	stop := m.syncs.Run(ctx, m.objects.Client, objects, m.syncChanges.Add)
	m.undoOpen.add(func(context.Context) { stop() })
	return nil
}

// startSyncChanges has spaces that run take up what is synced of them when that changes.
func (m *Manager) startSyncChanges(context.Context) error {
	stop := m.syncChanges.Run(m.takeUpSyncs)
	m.undoStart.add(func(context.Context) { stop() })
	return nil
}

// takeUpSyncs gives the account of a space the rights that it needs, and restarts the space if it runs with other declarations. One that
// sleeps is not woken.
func (m *Manager) takeUpSyncs(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if m.unprepared(name) {
		if err := m.repairIsolation(ctx, name); errors.Is(err, repairs.ErrNotIsolated) {
			return nil // it is gone, or is being deleted
		} else if err != nil {
			return err
		}
	}
	end, err := m.changes.Begin(name, "being restarted, because something else is synced of it")
	if err != nil {
		return err
	}
	defer end()
	if m.applied.get(name) == nil {
		return nil
	}
	if m.processes.get(name) != nil {
		m.sendSynced(name)
		return nil
	}
	return m.shard.RestartUnless(ctx, name, func(space *shard.Space) bool {
		return declaration.WatchedVersions(space.Declared()) == declaration.WatchedVersions(m.declared(name))
	})
}

// declaredTo returns what the process of a dedicated space is to sync; nil while that isn't known.
func (m *Manager) declaredTo(name string) *declaration.Update {
	keep, known := m.syncs.Unknown(name)
	if !known {
		return nil
	}
	return &declaration.Update{Declarations: m.declared(name), Keep: keep}
}

// sendDeclared sends the process of a dedicated space what is synced of the space, once the space's account has the rights for it.
func (m *Manager) sendDeclared(ctx context.Context, process *dedicated.Process, name string) {
	update := m.declaredTo(name)
	if update == nil || m.unprepared(name) {
		return
	}
	if err := process.Declare(ctx, update); err != nil {
		m.logger.V(1).Info("A dedicated space's process doesn't have what is synced of its space; Berth retries", "space", name, "reason", err.Error())
	}
}

// writeDeclared writes what is synced of a space into the directory of its process, which doesn't run.
func (m *Manager) writeDeclared(name, dir string) error {
	update := m.declaredTo(name)
	if update == nil {
		return nil
	}
	if err := spaceprocess.WriteDeclarations(dir, update); err != nil {
		return fmt.Errorf("write what is synced of space %s: %w", name, err)
	}
	return nil
}

// declared returns what a space syncs: what is in force for it, and what its account has the rights for.
func (m *Manager) declared(space string) []*declaration.Declaration {
	all := m.syncs.Of(space)
	if m.config.SpaceRole != "" { // which has the rights, as Secure has checked
		return all
	}
	return allowed(all, m.needingRights(space, all), m.accountRights.get(space))
}

// allowed returns the declarations for which a space's account has the rights that it needs.
func allowed(all, needs, has []*declaration.Declaration) []*declaration.Declaration {
	in := func(some []*declaration.Declaration, d *declaration.Declaration) bool {
		return slices.ContainsFunc(some, func(o *declaration.Declaration) bool { return o.Name == d.Name && o.Version == d.Version })
	}
	return slices.DeleteFunc(all, func(d *declaration.Declaration) bool { return in(needs, d) && !in(has, d) })
}

// needingRights returns those of a space's declarations that need rights of the space's account on the host: what is synced to the host, and
// all if the space has a process of its own, which watches the host by itself.
func (m *Manager) needingRights(space string, all []*declaration.Declaration) []*declaration.Declaration {
	all = slices.Clone(all)
	if m.processes.get(space) != nil {
		return all
	}
	return slices.DeleteFunc(all, func(d *declaration.Declaration) bool { return d.FromHost })
}

// unprepared reports whether the account of a space has other rights than what is in force needs.
func (m *Manager) unprepared(space string) bool {
	return m.config.SpaceRole == "" && declaration.WatchedVersions(m.needingRights(space, m.syncs.Of(space))) != declaration.WatchedVersions(m.accountRights.get(space))
}

// applyIsolation applies the isolation of a space, and notes for which syncs its account has rights then.
func (m *Manager) applyIsolation(ctx context.Context, space string, isolated func() *isolation.Isolation) (*isolation.Isolation, error) {
	defer m.accountRights.begin(space)()
	syncs := m.needingRights(space, m.syncs.Of(space)) // before those of isolated: if these are others, it is applied again
	is := isolated()
	if err := is.Apply(ctx, m.hostClient); err != nil {
		return nil, err
	}
	m.accountRights.set(space, syncs)
	return is, nil
}

// accountRights are the syncs for which the accounts of spaces have rights there, by the name of the space. The zero value is
// ready to use. It is safe for concurrent use.
type accountRights struct {
	mu       sync.Mutex
	of       map[string][]*declaration.Declaration
	applying map[string]*sync.Mutex
}

// begin waits until nobody else writes the rights of a space, until end is called.
func (a *accountRights) begin(space string) (end func()) {
	a.mu.Lock()
	is := a.applying[space]
	if is == nil {
		if a.applying == nil {
			a.applying = map[string]*sync.Mutex{}
		}
		is = &sync.Mutex{}
		a.applying[space] = is
	}
	a.mu.Unlock()
	is.Lock()
	return is.Unlock
}

// get returns what was set, which must not be changed.
func (a *accountRights) get(space string) []*declaration.Declaration {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.of[space]
}

func (a *accountRights) set(space string, syncs []*declaration.Declaration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.of == nil {
		a.of = map[string][]*declaration.Declaration{}
	}
	if delete(a.of, space); len(syncs) > 0 {
		a.of[space] = syncs
	}
}

// forget forgets a space that has no place.
func (a *accountRights) forget(space string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.of, space)
	delete(a.applying, space)
}
