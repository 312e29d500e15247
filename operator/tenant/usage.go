// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	"github.com/berth-dev/berth/api/v1alpha1"
)

type quantities = map[corev1.ResourceName]resource.Quantity

const (
	// mostOwners is how many owners the summary names; maxSummary and maxName limit the length of it.
	mostOwners, maxSummary, maxName = 3, 256, 64
)

// countSpaces sets what the status says of spaces and namespaces.
func (one *run) countSpaces(status *v1alpha1.TenantStatus) {
	size, ready := int32(0), 0
	for i := range one.spaces {
		space := &one.spaces[i]
		if isReady(space) {
			ready++
		}
		status.Spaces = append(status.Spaces, space.Name)
		size += ptr.Deref(space.Status.NamespaceCount, 0)
		for _, namespace := range space.Status.Namespaces {
			if space.Name != one.tenant.Name {
				namespace = space.Name + "/" + namespace
			}
			status.Namespaces = append(status.Namespaces, namespace)
		}
	}
	slices.Sort(status.Namespaces)
	status.Spaces, status.Namespaces = first(status.Spaces, maxSpaces), first(status.Namespaces, maxNamespaces)
	status.Size = &size
	status.Summary.Spaces = fmt.Sprintf("%d/%d", ready, len(one.spaces))
	status.Summary.Owners = ownersSummary(status.Owners)
	if one.pool != nil {
		status.Summary.NodeSelector = selectorSummary(one.pool.nodes.Selector)
	}
}

// sumUsage sets what the status says of quotas. The sums of the tenants below are in their own status: a parent sees no more of
// private ones, and a change goes up one level at a time (H6).
func (one *run) sumUsage(status *v1alpha1.TenantStatus) {
	hard, used := quantities{}, quantities{}
	for i := range one.spaces {
		sum(hard, one.spaces[i].Status.Quota.Hard)
		sum(used, one.spaces[i].Status.Quota.Used)
	}
	if one.quota != nil {
		hard = maps.Clone(one.quota)
	}
	status.Usage = v1alpha1.TenantUsage{Hard: atMost(hard), Used: atMost(used)}
	tenants, spaces, namespaces, all := int32(0), int32(len(one.spaces)), *status.Size, maps.Clone(used)
	for i := range one.children {
		below := &one.children[i].Status.Subtree
		tenants += 1 + ptr.Deref(below.Tenants, 0)
		spaces += ptr.Deref(below.Spaces, 0)
		namespaces += ptr.Deref(below.Namespaces, 0)
		sum(all, below.Used)
	}
	// The tenants below use of the same limit.
	status.Summary.CPU = usageSummary(hard, all, corev1.ResourceLimitsCPU, corev1.ResourceRequestsCPU)
	status.Summary.Memory = usageSummary(hard, all, corev1.ResourceLimitsMemory, corev1.ResourceRequestsMemory)
	status.Subtree = v1alpha1.SubtreeUsage{Tenants: &tenants, Spaces: &spaces, Namespaces: &namespaces, Used: atMost(all)}
}

func sum(total, more quantities) {
	for name, quantity := range more {
		value := total[name].DeepCopy()
		value.Add(quantity)
		total[name] = value
	}
}

// atMost returns as many quantities as the definition allows; nil if there are none.
func atMost(all quantities) quantities {
	if len(all) == 0 {
		return nil
	}
	for i, name := range slices.Sorted(maps.Keys(all)) {
		if i >= maxResources {
			delete(all, name)
		}
	}
	return all
}

// usageSummary returns "USED/LIMIT" of the first resource that has a limit.
func usageSummary(hard, used quantities, names ...corev1.ResourceName) string {
	for _, name := range names {
		if limit, ok := hard[name]; ok {
			use := used[name]
			return use.String() + "/" + limit.String()
		}
	}
	return ""
}

func ownersSummary(owners []v1alpha1.OwnerStatus) (text string) {
	for i, owner := range owners {
		if i == mostOwners {
			return fmt.Sprintf("%s +%d", text, len(owners)-i)
		}
		if i > 0 {
			text += ","
		}
		name := owner.Name
		if len(name) > maxName {
			name = name[:maxName] + "..."
		}
		text += name
	}
	return text
}

func first(names []string, most int) []string { return names[:min(len(names), most)] }
