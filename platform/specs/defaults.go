// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package specs

import (
	"cmp"
	"maps"
	"slices"

	"github.com/berth-dev/berth/api/v1alpha1"
)

// withDefaults returns a spec in which the defaults replace what is not set: single fields, entries of maps,
// resources of sync, scoped quotas, and identities of clouds. AllowedLabels and the closed address ranges are the union of both. If AllowedDomains,
// Tolerations, AllowedClasses, or a list of ignored clients is set, it replaces that of the defaults. Isolation, paused,
// deletionPolicy, tenantName,
// access, namespaces, and publications have no defaults.
func withDefaults(own, defaults v1alpha1.SpaceSpec) v1alpha1.SpaceSpec {
	own.Isolation = cmp.Or(own.Isolation, v1alpha1.Shared)
	own.DeletionPolicy = cmp.Or(own.DeletionPolicy, v1alpha1.DeletionDelete)
	if own.DedicateAfterSeconds == nil {
		own.DedicateAfterSeconds = defaults.DedicateAfterSeconds
	}
	own.Limits = joinMaps(own.Limits, defaults.Limits)
	own.Sync = joinSync(own.Sync, defaults.Sync)
	own.Quota = joinMaps(own.Quota, defaults.Quota)
	own.ScopedQuotas = joinBy(own.ScopedQuotas, defaults.ScopedQuotas, func(q v1alpha1.ScopedQuota) string { return q.Name })
	own.LimitRange = either(own.LimitRange, defaults.LimitRange)
	own.WorkloadIdentity = joinBy(own.WorkloadIdentity, defaults.WorkloadIdentity, func(w v1alpha1.WorkloadIdentity) string { return w.Annotation })
	security, usual := &own.PodSecurity, defaults.PodSecurity
	security.Level = cmp.Or(security.Level, usual.Level)
	security.DefaultSeccomp = cmp.Or(security.DefaultSeccomp, usual.DefaultSeccomp)
	security.RuntimeClassName = cmp.Or(security.RuntimeClassName, usual.RuntimeClassName)
	security.NetRaw = cmp.Or(security.NetRaw, usual.NetRaw)
	security.UserNamespaces = cmp.Or(security.UserNamespaces, usual.UserNamespaces)
	security.HostProfiles = cmp.Or(security.HostProfiles, usual.HostProfiles)
	own.Nodes.Selector = joinMaps(own.Nodes.Selector, defaults.Nodes.Selector)
	own.Nodes.AllowedLabels = joinSets(own.Nodes.AllowedLabels, defaults.Nodes.AllowedLabels)
	own.Nodes.Tolerations = either(own.Nodes.Tolerations, defaults.Nodes.Tolerations)
	own.Priority.AllowedClasses = either(own.Priority.AllowedClasses, defaults.Priority.AllowedClasses)
	own.Priority.DefaultClass = cmp.Or(own.Priority.DefaultClass, defaults.Priority.DefaultClass)
	own.Network.AllowedDomains = either(own.Network.AllowedDomains, defaults.Network.AllowedDomains)
	own.Network.ClosedRanges = joinSets(own.Network.ClosedRanges, defaults.Network.ClosedRanges)
	bandwidth, usually := &own.Network.PodBandwidth, defaults.Network.PodBandwidth
	bandwidth.Ingress.Default, bandwidth.Ingress.Max = cmp.Or(bandwidth.Ingress.Default, usually.Ingress.Default), cmp.Or(bandwidth.Ingress.Max, usually.Ingress.Max)
	bandwidth.Egress.Default, bandwidth.Egress.Max = cmp.Or(bandwidth.Egress.Default, usually.Egress.Default), cmp.Or(bandwidth.Egress.Max, usually.Egress.Max)
	if own.Sleep.IdleAfterSeconds == nil {
		own.Sleep.IdleAfterSeconds = defaults.Sleep.IdleAfterSeconds
	}
	clients, ignored := &own.Sleep.IgnoredClients, defaults.Sleep.IgnoredClients
	clients.UserAgents = either(clients.UserAgents, ignored.UserAgents)
	clients.Users = either(clients.Users, ignored.Users)
	clients.Groups = either(clients.Groups, ignored.Groups)
	own.HostNamespace.Labels = joinMaps(own.HostNamespace.Labels, defaults.HostNamespace.Labels)
	own.HostNamespace.Annotations = joinMaps(own.HostNamespace.Annotations, defaults.HostNamespace.Annotations)
	own.Snapshots.To = cmp.Or(own.Snapshots.To, defaults.Snapshots.To)
	if own.Snapshots.IntervalSeconds == nil {
		own.Snapshots.IntervalSeconds = defaults.Snapshots.IntervalSeconds
	}
	own.Snapshots.Keep = cmp.Or(own.Snapshots.Keep, defaults.Snapshots.Keep)
	own.Snapshots.Replication = cmp.Or(own.Snapshots.Replication, defaults.Snapshots.Replication)
	return own
}

// joinMaps returns the entries of both maps. Where both have a key, the value of own is used. It returns nil if there
// are no entries.
func joinMaps[K comparable, V any](own, defaults map[K]V) map[K]V {
	if len(defaults) == 0 {
		return own
	}
	joined := maps.Clone(defaults)
	maps.Copy(joined, own)
	return joined
}

// joinSets returns the sorted union of two lists.
func joinSets(a, b []string) []string {
	joined := slices.Concat(a, b)
	slices.Sort(joined)
	return slices.Compact(joined)
}

func either[T any](own, defaults []T) []T {
	if len(own) > 0 {
		return own
	}
	return defaults
}

func joinSync(own, defaults []v1alpha1.SyncOption) []v1alpha1.SyncOption {
	return joinBy(own, defaults, func(o v1alpha1.SyncOption) string { return o.Resource })
}

// joinBy returns the items of both lists. Where both have an item of a name, that of own is used.
func joinBy[T any](own, defaults []T, name func(T) string) []T {
	joined := slices.Clone(own)
	for _, item := range defaults {
		if !slices.ContainsFunc(own, func(o T) bool { return name(o) == name(item) }) {
			joined = append(joined, item)
		}
	}
	return joined
}
