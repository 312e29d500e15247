// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package platform

import (
	"net/netip"
	"slices"
	"strings"

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

// specs are what the configuration says of spaces, and what that means.
type specs struct {
	sync              syncer.Options
	reservedLabels    []string
	showNodeAddresses bool
	// shared and dedicated are the names of the spaces to start, in the order of the configuration.
	shared, dedicated []string
	// settings are those of each of them, and usual those of any other.
	settings map[string]*spaceSettings
	usual    *spaceSettings
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
	s := &specs{reservedLabels: c.ReservedLabels, showNodeAddresses: c.ShowNodeAddresses, usual: &usual, settings: map[string]*spaceSettings{}}
	for i := range c.Spaces {
		space, path := &c.Spaces[i], field.NewPath("spaces").Index(i)
		if err := isolation.CheckSpaceName(space.Name); err != nil {
			errs = append(errs, field.Invalid(path.Child("metadata", "name"), space.Name, err.Error()))
		}
		if s.settings[space.Name] != nil {
			errs = append(errs, field.Duplicate(path.Child("metadata", "name"), space.Name))
		}
		errs = append(errs, checkSpec(&space.Spec, path.Child("spec"))...)
		_, more := settingsOf(&space.Spec, path.Child("spec"))
		errs = append(errs, more...)
		spec := withDefaults(space.Spec, c.SpaceDefaults)
		settings, _ := settingsOf(&spec, nil)
		s.settings[space.Name] = &settings
		if spec.Isolation == v1alpha1.Dedicated {
			s.dedicated = append(s.dedicated, space.Name)
		} else {
			s.shared = append(s.shared, space.Name)
		}
	}
	if len(errs) > 0 {
		return nil, errs.ToAggregate()
	}
	s.sync = syncer.Options{Sync: synced, IngressAnnotations: c.IngressAnnotations, NodeLabels: s.nodeLabels()}
	for _, settings := range s.all() {
		settings.placement.ByName = synced.On(resources.DaemonSets)
	}
	return s, nil
}

// checkDefaults refuses what each space has to say for itself.
func checkDefaults(spec *v1alpha1.SpaceSpec, path *field.Path) (errs field.ErrorList) {
	for name, set := range map[string]bool{
		"isolation": spec.Isolation != "", "paused": spec.Paused != nil, "deletionPolicy": spec.DeletionPolicy != "",
	} {
		if set {
			errs = append(errs, field.Forbidden(path.Child(name), "each space says this for itself"))
		}
	}
	return append(errs, checkSleepAndSnapshots(spec, path)...)
}

// checkSpec refuses what can't be said of one space yet.
func checkSpec(spec *v1alpha1.SpaceSpec, path *field.Path) (errs field.ErrorList) {
	if spec.Isolation != "" && spec.Isolation != v1alpha1.Shared && spec.Isolation != v1alpha1.Dedicated {
		errs = append(errs, field.NotSupported(path.Child("isolation"), spec.Isolation, []v1alpha1.Isolation{v1alpha1.Shared, v1alpha1.Dedicated}))
	}
	if len(spec.Sync) > 0 {
		errs = append(errs, field.Forbidden(path.Child("sync"), "all spaces of a platform are synced alike; set it in spaceDefaults"))
	}
	if spec.Paused != nil {
		errs = append(errs, field.Forbidden(path.Child("paused"), "spaces of a configuration file can't be paused; leave the space out"))
	}
	if spec.DeletionPolicy != "" {
		errs = append(errs, field.Forbidden(path.Child("deletionPolicy"), "spaces of a configuration file are not deleted; their data stays"))
	}
	return append(errs, checkSleepAndSnapshots(spec, path)...)
}

func checkSleepAndSnapshots(spec *v1alpha1.SpaceSpec, path *field.Path) (errs field.ErrorList) {
	if sleep := spec.Sleep; sleep.IdleAfterSeconds != nil || len(sleep.IgnoredClients.UserAgents)+len(sleep.IgnoredClients.Users)+len(sleep.IgnoredClients.Groups) > 0 {
		errs = append(errs, field.Forbidden(path.Child("sleep"), "all spaces of a platform sleep alike; use --idle-after"))
	}
	if spec.Snapshots.To != "" {
		errs = append(errs, field.Forbidden(path.Child("snapshots"), "all spaces of a platform have the same snapshots; use --snapshot-to"))
	}
	return errs
}

// all returns the settings of all spaces, and the usual ones.
func (s *specs) all() []*spaceSettings {
	all := []*spaceSettings{s.usual}
	for _, settings := range s.settings {
		all = append(all, settings)
	}
	return all
}

// of returns the settings of a space.
func (s *specs) of(space string) *spaceSettings {
	if settings := s.settings[space]; settings != nil {
		return settings
	}
	return s.usual
}

// isListed reports whether the configuration names a space.
func (s *specs) isListed(space string) bool { return s.settings[space] != nil }

// nodeLabels are the keys of all labels of nodes that spaces are about.
func (s *specs) nodeLabels() (keys []string) {
	for _, settings := range s.all() {
		keys = append(keys, settings.placement.Labels...)
		for key := range settings.placement.Selector {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}

// limits are for [gateway.NewLimiter].
func (s *specs) limits(space string) bounds.Limits { return s.of(space).limits }

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
