// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/internal/safego"
	"github.com/berth-dev/berth/isolation"
	"github.com/berth-dev/berth/platform/datadir"
	"github.com/berth-dev/berth/platform/repairs"
	"github.com/berth-dev/berth/translate"
)

// watchIsolation restores the objects that isolate spaces when somebody changes them, until the platform stops. It
// covers spaces that sleep, too.
func (m *Manager) watchIsolation(context.Context) error {
	config := rest.CopyConfig(m.env.Host)
	config.QPS = -1 // the host's API priority and fairness limits the requests
	host, err := client.NewWithWatch(config, client.Options{Scheme: scheme.Scheme, Mapper: m.hostClient.RESTMapper()})
	if err != nil {
		return fmt.Errorf("make host client: %w", err)
	}
	options := m.config.Specs.Sync().Sync
	watch := &isolation.Watch{
		Host: host, Of: m.isolated, Spaces: m.applied.names, Changed: m.repairs.Note,
		Logger: m.logger,
	}
	if m.config.SpaceRole == "" {
		watch.Policies = isolation.Policies(options)
	}
	life, end := context.WithCancel(context.Background())
	var group sync.WaitGroup
	safego.Go(&group, "watch isolation", func() { watch.Run(life) }, nil)
	safego.Go(&group, "repair isolation", func() { m.repairs.Run(life) }, nil)
	m.undoStart.add(func(context.Context) { end(); group.Wait() })
	return nil
}

// isolated returns the isolation of a space. It is nil if the space has no place on this platform or is being deleted,
// so that nothing is restored that a deletion has removed. After a crash, this process may not have resumed the
// deletion yet, and the space may no longer have a directory.
func (m *Manager) isolated(name string) *isolation.Isolation {
	if m.applied.get(name) == nil || m.deletions.has(name) {
		return nil
	}
	object := m.objects.Get(name)
	if object == nil { // the watch on spaces is behind
		store, err := datadir.StoreIDIn(datadir.Space(m.config.DataDir, name))
		if err != nil {
			return nil
		}
		return m.isolationOf(name, store)
	}
	store := object.Annotations[translate.AnnotationStore]
	if store == "" || !object.DeletionTimestamp.IsZero() {
		return nil
	}
	return m.isolationOf(name, store)
}

// repairIsolation restores the isolation of a space, for [repairs].
func (m *Manager) repairIsolation(ctx context.Context, name string) error {
	if name == "" {
		return isolation.InstallPolicies(ctx, m.hostClient, m.config.Specs.Sync().Sync)
	}
	end, err := m.changes.Begin(name, "being isolated again")
	if err != nil {
		return err
	}
	defer end()
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	isolated := m.isolated(name)
	if isolated == nil {
		return repairs.ErrNotIsolated
	}
	// The space may have been deleted while the watch is behind. Then the namespace may belong to somebody else.
	object := &v1alpha1.Space{}
	err = m.objects.Client.Get(ctx, client.ObjectKey{Name: name}, object)
	if apierrors.IsNotFound(err) || err == nil && object.Annotations[translate.AnnotationStore] != isolated.Space.Store {
		return repairs.ErrNotIsolated
	}
	if err != nil {
		return fmt.Errorf("read Space object %s: %w", name, err)
	}
	if _, err := m.applyIsolation(ctx, name, func() *isolation.Isolation { return m.isolationOf(name, isolated.Space.Store) }); err != nil {
		return err
	}
	if m.processes.get(name) != nil {
		m.access.Expire(name) // a token is valid only for the account that it was issued for, not for one created again with the same name
	}
	return nil
}

// repairsChanged implements the callback of [repairs]. The name is empty for the policies, which belong to no space.
func (m *Manager) repairsChanged(space string) {
	if space != "" {
		m.changed(space)
	}
}

// names returns the names of all spaces that have a place.
func (s *appliedSpecs) names() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Keys(s.of))
}
