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

// watchIsolation has what isolates spaces put back when somebody changes it, until the platform stops: also for spaces
// that sleep.
func (m *Manager) watchIsolation(context.Context) error {
	config := rest.CopyConfig(m.env.Host)
	config.QPS = -1 // the host's own priority and fairness decides
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

// isolated is what isolates a space; nil if this platform has no place for it, or it is being deleted, so that nothing
// comes back that a deletion has removed. A process that goes on with a deletion after a crash may not have begun with
// it yet, and then the space may have no directory any more.
func (m *Manager) isolated(name string) *isolation.Isolation {
	if m.applied.get(name) == nil || m.deletions.has(name) {
		return nil
	}
	object := m.objects.Get(name)
	if object == nil { // the watch of spaces is behind
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

// repairIsolation is for [repairs].
func (m *Manager) repairIsolation(ctx context.Context, name string) error {
	if name == "" {
		return isolation.InstallPolicies(ctx, m.hostClient, m.config.Specs.Sync().Sync)
	}
	end, err := m.changes.begin(name, "being isolated again")
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
	// It may have been deleted meanwhile, and the watch be behind: then what is there is another's.
	object := &v1alpha1.Space{}
	err = m.objects.Client.Get(ctx, client.ObjectKey{Name: name}, object)
	if apierrors.IsNotFound(err) || err == nil && object.Annotations[translate.AnnotationStore] != isolated.Space.Store {
		return repairs.ErrNotIsolated
	}
	if err != nil {
		return fmt.Errorf("read Space object %s: %w", name, err)
	}
	if err := isolated.Apply(ctx, m.hostClient); err != nil {
		return err
	}
	if m.processes.get(name) != nil {
		m.access.Expire(name) // a token is of one account: if that was made again, the token is good no more
	}
	return nil
}

// repairsChanged is for [repairs]. The policies are of no space.
func (m *Manager) repairsChanged(space string) {
	if space != "" {
		m.changed(space)
	}
}

// names are those of all spaces that have a place.
func (s *appliedSpecs) names() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Keys(s.of))
}
