// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package storekeys

import (
	"slices"
	"strings"
)

// Key returns the key of an object. In the keys of built-in resources there is no group, as in upstream's store. The resources
// of extensions have it, because two groups may use the same plural.
func Key(group, plural, tenant, namespace, name string) string {
	parts := []string{"/registry"}
	if !builtIn(group) {
		parts = append(parts, group)
	}
	parts = append(parts, plural, tenant)
	if namespace != "" {
		parts = append(parts, namespace)
	}
	return strings.Join(append(parts, name), "/")
}

// builtIn reports whether upstream's API server itself stores the group. It stores definitions and API services by their group,
// because another API server might do so, too.
func builtIn(group string) bool {
	return slices.Contains([]string{
		"", "apps", "autoscaling", "batch", "policy", "admissionregistration.k8s.io", "authentication.k8s.io", "authorization.k8s.io",
		"certificates.k8s.io", "coordination.k8s.io", "discovery.k8s.io", "events.k8s.io", "flowcontrol.apiserver.k8s.io",
		"internal.apiserver.k8s.io", "networking.k8s.io", "node.k8s.io", "rbac.authorization.k8s.io", "resource.k8s.io",
		"scheduling.k8s.io", "storage.k8s.io", "storagemigration.k8s.io",
	}, group)
}

// computed reports whether the objects of a resource are not in the store: they are made for each request, or are those of
// another group.
func computed(group, plural string) bool {
	switch {
	case group == "" && plural == "componentstatuses":
		return true
	case group == "events.k8s.io": // the same objects are events of the core group
		return true
	case group == "access.berth.dev" && plural == "crdmatches":
		return true
	case strings.HasSuffix(group, "metrics.k8s.io"):
		return true
	}
	return false
}
