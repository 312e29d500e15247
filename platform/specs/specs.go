// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package specs translates the specs of spaces, with the defaults of the configuration, into the settings of the
// packages that use them. It rejects invalid values.
package specs

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/bounds"
	"github.com/berth-dev/berth/isolation"
	"github.com/berth-dev/berth/shard"
	"github.com/berth-dev/berth/syncer"
	"github.com/berth-dev/berth/syncer/patches"
	"github.com/berth-dev/berth/syncer/resources"
	"github.com/berth-dev/berth/translate"
)

// Options are the part of a configuration that is about spaces.
type Options struct {
	// Spaces are spaces whose objects the platform creates or updates on the host before it starts. Only the name is
	// required. The platform also serves all other spaces whose objects name it.
	Spaces []v1alpha1.Space
	// SpaceDefaults is the spec for what a space's own spec does not set.
	SpaceDefaults v1alpha1.SpaceSpec
	// AllowedSync are the maximum values that spec.sync of a space may have, for resources where that is more than
	// SpaceDefaults.
	AllowedSync []v1alpha1.SyncOption
	// IngressAnnotations are the keys of annotations that are synced with Ingresses. ReservedLabels are label keys,
	// domains, or prefixes that end in a dot, on which controllers of the host act.
	IngressAnnotations, ReservedLabels []string
	// ShowNodeAddresses syncs the addresses of nodes in the statuses of Services, Ingresses, and Gateways.
	ShowNodeAddresses bool
	// IdleAfter is how long a space is idle before it is put to sleep, if its spec does not set it. Zero means never.
	IdleAfter time.Duration
	// KubernetesVersion is the only minor version of Kubernetes that spaces may have, such as 1.37; "" if shards serve several, of which the
	// operator chooses.
	KubernetesVersion string
	// SnapshotDestinations are the URLs that spec.snapshots.to may name. The first is the default. If there are none,
	// no scheduled snapshots are taken.
	SnapshotDestinations []string
}

// Specs holds the settings of all spaces. It is safe for concurrent use.
type Specs struct {
	sync              syncer.Options
	reservedLabels    []string
	showNodeAddresses bool
	idleAfter         time.Duration
	defaults          v1alpha1.SpaceSpec
	usual             *Settings // of a space whose spec is empty
	destinations      []string
	kubernetes        string
	sources           *sources
	compiler          *patches.Compiler

	mu       sync.RWMutex
	settings map[string]*Settings // by name of the space
}

// New returns the specs of a configuration, or an error that lists all invalid values.
func New(c *Options) (*Specs, error) {
	defaults := field.NewPath("spaceDefaults")
	errs := checkDefaults(&c.SpaceDefaults, defaults)
	offered, synced, more := syncOf(c, defaults.Child("sync"))
	errs = append(errs, more...)
	for i, key := range c.IngressAnnotations {
		for _, problem := range validation.IsQualifiedName(key) {
			errs = append(errs, field.Invalid(field.NewPath("ingressAnnotations").Index(i), key, problem))
		}
	}
	for i, entry := range c.ReservedLabels {
		for _, problem := range validation.IsQualifiedName(strings.TrimSuffix(entry, ".")) {
			errs = append(errs, field.Invalid(field.NewPath("reservedLabels").Index(i), entry,
				"must be a domain, a prefix that ends in a dot, or a label key: "+problem))
		}
	}
	usual, more := settingsOf(&c.SpaceDefaults, defaults)
	errs = append(append(errs, more...), checkSnapshots(&c.SpaceDefaults.Snapshots, c.SnapshotDestinations, defaults.Child("snapshots"))...)
	usual.setSync(synced)
	errs = append(errs, usual.checkIdentities(c.ReservedLabels, defaults)...)
	compiler := patches.NewCompiler()
	usual.patches, more = compiler.Compile(c.SpaceDefaults.Patches, defaults.Child("patches"))
	errs = append(append(errs, more...), checkNumber(c.SpaceDefaults.Patches, defaults.Child("patches"))...)
	s := &Specs{
		sync: syncer.Options{Sync: offered, IngressAnnotations: c.IngressAnnotations}, reservedLabels: c.ReservedLabels, showNodeAddresses: c.ShowNodeAddresses,
		idleAfter: c.IdleAfter, destinations: c.SnapshotDestinations, kubernetes: c.KubernetesVersion,
		defaults: c.SpaceDefaults, usual: &usual, settings: map[string]*Settings{}, sources: newSources(), compiler: compiler,
	}
	for i := range c.Spaces {
		space, path := &c.Spaces[i], field.NewPath("spaces").Index(i)
		if err := isolation.CheckSpaceName(space.Name); err != nil {
			errs = append(errs, field.Invalid(path.Child("metadata", "name"), space.Name, err.Error()))
		}
		if s.settings[space.Name] != nil {
			errs = append(errs, field.Duplicate(path.Child("metadata", "name"), space.Name))
		}
		settings, more := s.Read(&space.Spec, path.Child("spec"))
		errs = append(errs, more...)
		s.settings[space.Name] = settings
	}
	if len(errs) > 0 {
		return nil, errs.ToAggregate()
	}
	return s, nil
}

// Sync returns what spaces may sync with the host.
func (s *Specs) Sync() syncer.Options { return s.sync }

// DedicateAfter returns how long a space with this spec exceeds its share before it becomes dedicated; 0 means never.
func (s *Specs) DedicateAfter(spec *v1alpha1.SpaceSpec) time.Duration {
	seconds := ptr.Deref(spec.DedicateAfterSeconds, ptr.Deref(s.defaults.DedicateAfterSeconds, 0))
	return time.Duration(seconds) * time.Second
}

// ClosedRanges returns the address ranges that are closed to spaces by default, in addition to those of the host.
func (s *Specs) ClosedRanges() []netip.Prefix { return s.usual.closed }

// Read returns the settings of a spec, with the defaults, and an error for each invalid value.
func (s *Specs) Read(spec *v1alpha1.SpaceSpec, path *field.Path) (*Settings, field.ErrorList) {
	errs := append(checkSpec(spec, path), s.checkVersion(spec.KubernetesVersion, path.Child("kubernetesVersion"))...)
	errs = append(errs, checkSnapshots(&spec.Snapshots, s.destinations, path.Child("snapshots"))...)
	_, more := settingsOf(spec, path)
	errs = append(errs, more...)
	full := withDefaults(*spec, s.defaults)
	settings, _ := settingsOf(&full, nil)
	errs = append(errs, checkOwnNodes(&full, path)...)
	synced, more := s.syncOf(spec.Sync, path.Child("sync"))
	settings.setSync(synced)
	errs = append(append(errs, more...), settings.checkIdentities(s.reservedLabels, path)...)
	patched, more := s.patchesOf(spec.Patches, path.Child("patches"))
	settings.patches = patched
	return &settings, append(errs, more...)
}

// checkVersion rejects a version of Kubernetes that no process of the platform serves.
func (s *Specs) checkVersion(version string, path *field.Path) field.ErrorList {
	if version == "" || s.kubernetes == "" || version == s.kubernetes {
		return nil
	}
	return field.ErrorList{field.Invalid(path, version, fmt.Sprintf("this platform serves Kubernetes %s; remove the field, or run a shard with --emulated-version=%s", s.kubernetes, version))}
}

// checkNumber rejects more patches than there may be.
func checkNumber(specs []v1alpha1.SyncPatch, path *field.Path) field.ErrorList {
	if len(specs) <= patches.MaxPatches {
		return nil
	}
	return field.ErrorList{field.TooMany(path, len(specs), patches.MaxPatches)}
}

// patchesOf returns the patches of a space whose spec has these: those of the platform, some of which are replaced, and then the others.
func (s *Specs) patchesOf(own []v1alpha1.SyncPatch, path *field.Path) (*patches.Patches, field.ErrorList) {
	if len(own) == 0 {
		return s.usual.patches, nil // shared by all such spaces
	}
	_, errs := s.compiler.Compile(own, path)
	if errs = append(errs, checkNumber(own, path)...); len(errs) > 0 {
		return s.usual.patches, errs
	}
	all := slices.Clone(s.defaults.Patches)
	for _, patch := range own {
		if i := slices.IndexFunc(all, func(usual v1alpha1.SyncPatch) bool { return usual.Name == patch.Name }); i >= 0 {
			all[i] = patch
		} else {
			all = append(all, patch)
		}
	}
	return s.compiler.Compile(all, path)
}

// Set changes the settings of a space. Those that are read while it runs, and what it enforces of its tenant, take effect at once,
// the others at its next start.
func (s *Specs) Set(space string, settings *Settings) {
	s.mu.Lock()
	s.settings[space] = settings
	s.mu.Unlock()
	s.sources.update(space, settings.enforced)
}

// Remove removes the settings of a deleted space.
func (s *Specs) Remove(space string) {
	s.sources.remove(space)
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.settings, space)
}

// Of returns the settings of a space.
func (s *Specs) Of(space string) *Settings {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if settings := s.settings[space]; settings != nil {
		return settings
	}
	return s.usual
}

// checkDefaults rejects fields that have no defaults, because each space has to set them itself.
func checkDefaults(spec *v1alpha1.SpaceSpec, path *field.Path) (errs field.ErrorList) {
	for name, set := range map[string]bool{
		"platformName": spec.PlatformName != "", "isolation": spec.Isolation != "", "kubernetesVersion": spec.KubernetesVersion != "", "paused": spec.Paused != nil, "store": spec.Store != (v1alpha1.Store{}), "deletionPolicy": spec.DeletionPolicy != "",
		"tenantName": spec.TenantName != "", "access": !equality.Semantic.DeepEqual(spec.Access, v1alpha1.Access{}),
		"namespaces": !equality.Semantic.DeepEqual(spec.Namespaces, v1alpha1.Namespaces{}), "publications": len(spec.Publications) > 0,
		"tenantLimits": len(spec.TenantLimits) > 0, "audit": auditOf(spec) != nil,
		"priority.preemption": spec.Priority.Preemption != "",
	} {
		if set {
			errs = append(errs, field.Forbidden(path.Child(name), "set this field in each space instead"))
		}
	}
	return errs
}

// checkSpec rejects what the schema of Space rejects, because spaces of a configuration file are not validated by it.
func checkSpec(spec *v1alpha1.SpaceSpec, path *field.Path) (errs field.ErrorList) {
	if spec.Isolation != "" && spec.Isolation != v1alpha1.Shared && spec.Isolation != v1alpha1.Dedicated {
		errs = append(errs, field.NotSupported(path.Child("isolation"), spec.Isolation, []v1alpha1.Isolation{v1alpha1.Shared, v1alpha1.Dedicated}))
	}
	types := []v1alpha1.StoreType{v1alpha1.StoreSQLite, v1alpha1.StorePostgreSQL, v1alpha1.StoreMySQL, v1alpha1.StoreEtcd, v1alpha1.StoreNATS, v1alpha1.StoreS3}
	if spec.Store.Type != "" && !slices.Contains(types, spec.Store.Type) {
		errs = append(errs, field.NotSupported(path.Child("store", "type"), spec.Store.Type, types))
	}
	if spec.Store.InServer() != (spec.Store.SecretName != "") {
		errs = append(errs, field.Invalid(path.Child("store", "secretName"), spec.Store.SecretName, "is needed for a store in a database server, and not allowed for SQLite"))
	}
	return errs
}

// Limits returns a space's limits, for [gateway.NewLimiter].
func (s *Specs) Limits(space string) bounds.Limits { return s.Of(space).Limits() }

// Idle returns when a space counts as idle.
func (s *Specs) Idle(space string) shard.Idle {
	idle := s.Of(space).idle
	if idle.After < 0 {
		idle.After = s.idleAfter
	}
	return idle
}

// Objects returns the settings of a space's objects on the host.
func (s *Specs) Objects(space string) translate.Settings {
	own := s.Of(space)
	return translate.Settings{
		DefaultLimits: own.defaultLimits(), Counted: translate.CountedBy(own.Quota), Claims: own.sync.On(resources.ResourceClaims), Bandwidth: own.bandwidth,
		PodSecurity: own.security, Domains: own.domains, ReservedLabels: s.reservedLabels, ShowNodeAddresses: s.showNodeAddresses,
		Priorities: own.priorities, WorkloadIdentity: own.identities,
	}
}

// Shard returns the settings of a space for its shard. closed are ranges that are closed to all spaces.
func (s *Specs) Shard(space string, closed []netip.Prefix) shard.Settings {
	own := s.Of(space)
	return shard.Settings{Limits: own.limits, Tenant: s.tenantOf(space), Sync: &own.sync, Patches: own.patches, Placement: own.placement, Objects: s.Objects(space), Closed: isolation.JoinRanges(slices.Concat(closed, own.closed)), Access: s.Access(space), HostLimits: isolation.Limits(own.LimitRange)}
}
