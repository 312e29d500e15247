// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package platform

import (
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/bounds"
	"github.com/berth-dev/berth/isolation"
	"github.com/berth-dev/berth/shard"
	"github.com/berth-dev/berth/syncer"
	"github.com/berth-dev/berth/syncer/resources"
	"github.com/berth-dev/berth/translate"
)

// specs are what spaces are to be, in the terms of the packages that act on it. It is safe for concurrent use.
type specs struct {
	sync              syncer.Options
	reservedLabels    []string
	showNodeAddresses bool
	idleAfter         time.Duration
	defaults          v1alpha1.SpaceSpec
	usual             *spaceSettings // of a space that says nothing

	mu       sync.RWMutex
	settings map[string]*spaceSettings // by space
}

// newSpecs returns what a configuration says, or what in it means nothing.
func newSpecs(c *ProcessConfig) (*specs, error) {
	defaults := field.NewPath("spaceDefaults")
	errs := checkDefaults(&c.SpaceDefaults, defaults)
	synced, more := syncOf(c.SpaceDefaults.Sync, defaults.Child("sync"))
	errs = append(errs, more...)
	for i, key := range c.IngressAnnotations {
		for _, problem := range validation.IsQualifiedName(key) {
			errs = append(errs, field.Invalid(field.NewPath("ingressAnnotations").Index(i), key, problem))
		}
	}
	for i, entry := range c.ReservedLabels {
		for _, problem := range validation.IsQualifiedName(strings.TrimSuffix(entry, ".")) {
			errs = append(errs, field.Invalid(field.NewPath("reservedLabels").Index(i), entry,
				"want a domain, a prefix that ends in a dot, or a key: "+problem))
		}
	}
	usual, more := settingsOf(&c.SpaceDefaults, defaults)
	errs = append(errs, more...)
	usual.placement.ByName = synced.On(resources.DaemonSets)
	s := &specs{
		sync: syncer.Options{Sync: synced, IngressAnnotations: c.IngressAnnotations}, reservedLabels: c.ReservedLabels, showNodeAddresses: c.ShowNodeAddresses,
		idleAfter: c.IdleAfter,
		defaults:  c.SpaceDefaults, usual: &usual, settings: map[string]*spaceSettings{},
	}
	for i := range c.Spaces {
		space, path := &c.Spaces[i], field.NewPath("spaces").Index(i)
		if err := isolation.CheckSpaceName(space.Name); err != nil {
			errs = append(errs, field.Invalid(path.Child("metadata", "name"), space.Name, err.Error()))
		}
		if s.settings[space.Name] != nil {
			errs = append(errs, field.Duplicate(path.Child("metadata", "name"), space.Name))
		}
		settings, more := s.read(&space.Spec, path.Child("spec"))
		errs = append(errs, more...)
		s.settings[space.Name] = settings
	}
	if len(errs) > 0 {
		return nil, errs.ToAggregate()
	}
	return s, nil
}

// read returns what a spec says, with the defaults, and what in it means nothing.
func (s *specs) read(spec *v1alpha1.SpaceSpec, path *field.Path) (*spaceSettings, field.ErrorList) {
	errs := checkSpec(spec, path)
	_, more := settingsOf(spec, path)
	errs = append(errs, more...)
	full := withDefaults(*spec, s.defaults)
	settings, _ := settingsOf(&full, nil)
	settings.placement.ByName = s.sync.Sync.On(resources.DaemonSets)
	return &settings, errs
}

// set has a space be what its settings say, once it next starts.
func (s *specs) set(space string, settings *spaceSettings) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.settings[space] = settings
}

// remove forgets a space that is gone.
func (s *specs) remove(space string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.settings, space)
}

// of returns the settings of a space.
func (s *specs) of(space string) *spaceSettings {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if settings := s.settings[space]; settings != nil {
		return settings
	}
	return s.usual
}

// checkDefaults refuses what each space has to say for itself.
func checkDefaults(spec *v1alpha1.SpaceSpec, path *field.Path) (errs field.ErrorList) {
	for name, set := range map[string]bool{
		"platformName": spec.PlatformName != "", "isolation": spec.Isolation != "", "paused": spec.Paused != nil, "deletionPolicy": spec.DeletionPolicy != "",
	} {
		if set {
			errs = append(errs, field.Forbidden(path.Child(name), "each space says this for itself"))
		}
	}
	return append(errs, checkSnapshots(spec, path)...)
}

// checkSpec refuses what can't be said of one space yet.
func checkSpec(spec *v1alpha1.SpaceSpec, path *field.Path) (errs field.ErrorList) {
	if spec.Isolation != "" && spec.Isolation != v1alpha1.Shared && spec.Isolation != v1alpha1.Dedicated {
		errs = append(errs, field.NotSupported(path.Child("isolation"), spec.Isolation, []v1alpha1.Isolation{v1alpha1.Shared, v1alpha1.Dedicated}))
	}
	if len(spec.Sync) > 0 {
		errs = append(errs, field.Forbidden(path.Child("sync"), "all spaces of a platform are synced alike; set it in spaceDefaults"))
	}
	return append(errs, checkSnapshots(spec, path)...)
}

func checkSnapshots(spec *v1alpha1.SpaceSpec, path *field.Path) (errs field.ErrorList) {
	if spec.Snapshots.To != "" {
		errs = append(errs, field.Forbidden(path.Child("snapshots"), "all spaces of a platform have the same snapshots; use --snapshot-to"))
	}
	return errs
}

// limits are for [gateway.NewLimiter].
func (s *specs) limits(space string) bounds.Limits { return s.of(space).limits }

// idle says when a space is idle.
func (s *specs) idle(space string) shard.Idle {
	idle := s.of(space).idle
	if idle.After < 0 {
		idle.After = s.idleAfter
	}
	return idle
}

// objects are the settings of a space's objects on the host.
func (s *specs) objects(space string) translate.Settings {
	own := s.of(space)
	return translate.Settings{
		DefaultLimits: own.defaultLimits(),
		PodSecurity:   own.security, Domains: own.domains, ReservedLabels: s.reservedLabels, ShowNodeAddresses: s.showNodeAddresses,
	}
}

// shardSettings are those of a space, with the address ranges that are closed to all.
func (s *specs) shardSettings(space string, closed []netip.Prefix) shard.Settings {
	own := s.of(space)
	return shard.Settings{Limits: own.limits, Placement: own.placement, Objects: s.objects(space), Closed: isolation.JoinRanges(slices.Concat(closed, own.closed))}
}
