// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package platform

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/internal/safego"
	"github.com/berth-dev/berth/isolation"
)

// watchIsolation has what isolates spaces put back when somebody changes it, until the platform stops: also for spaces that sleep.
func (p *Platform) watchIsolation(context.Context) error {
	config := rest.CopyConfig(p.host.Config())
	config.QPS = -1 // the host's own priority and fairness decides
	host, err := client.NewWithWatch(config, client.Options{Scheme: scheme.Scheme, Mapper: p.hostClient.RESTMapper()})
	if err != nil {
		return fmt.Errorf("make host client: %w", err)
	}
	options := p.config.specs.sync.Sync
	p.repairs = newRepairs(p.repairIsolation, func(space string) {
		if space != "" {
			p.changed(space)
		}
	}, p.logger)
	watch := &isolation.Watch{
		Host: host, Of: p.isolated, Spaces: p.applied.names, Changed: p.repairs.note,
		Classes: len(isolation.ClassRules(options)) > 0, Logger: p.logger,
	}
	if p.config.SpaceRole == "" {
		watch.Policies = isolation.Policies(options)
	}
	life, end := context.WithCancel(context.Background())
	var group sync.WaitGroup
	safego.Go(&group, "watch isolation", func() { watch.Run(life) }, nil)
	safego.Go(&group, "repair isolation", func() { p.repairs.run(life) }, nil)
	p.onStop(func(context.Context) { end(); group.Wait() })
	return nil
}

// isolated is what isolates a space; nil if this platform has no place for it, or is deleting it.
func (p *Platform) isolated(name string) *isolation.Isolation {
	if p.applied.get(name) == nil || p.deletions.has(name) {
		return nil
	}
	store, err := p.knownStoreID(name)
	if err != nil {
		return nil
	}
	return p.isolationOf(name, store)
}

// repairIsolation is for [repairs].
func (p *Platform) repairIsolation(ctx context.Context, name string) error {
	if name == "" {
		return isolation.InstallPolicies(ctx, p.hostClient, p.config.specs.sync.Sync)
	}
	end, err := p.changes.begin(name, "being isolated again")
	if err != nil {
		return err
	}
	defer end()
	isolated := p.isolated(name) // it may have been deleted meanwhile
	if isolated == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	return isolated.Apply(ctx, p.hostClient)
}

// names are those of all spaces that have a place.
func (s *appliedSpecs) names() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Keys(s.of))
}
