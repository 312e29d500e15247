// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package translate

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Counted are the resources, in addition to CPU, memory, and ephemeral storage, that pods of a space may request, because
// the quota of the space counts them: extended resources and huge pages, by the names with which containers request them,
// and the classes of devices that claims may request, by the names in the quota ([ClassQuotaName]).
// A quota ignores what it doesn't name: of all others, the first tenant would take the last (Q4).
type Counted []corev1.ResourceName

// CountedBy returns what a quota counts, sorted. A resource of which it allows nothing is included: the quota refuses it.
func CountedBy(quota corev1.ResourceList) (c Counted) {
	for name := range quota {
		requested := corev1.ResourceName(strings.TrimPrefix(string(name), corev1.DefaultResourceRequestsPrefix))
		if class, ok := strings.CutSuffix(string(name), corev1.ResourceClaimsPerClass); ok {
			// The scheduler makes a resource claim for such a request, which the quota counts.
			c = append(c, corev1.ResourceName(resourcev1.ResourceDeviceClassPrefix+class), name)
		} else if isHugePages(requested) || requested != name && isExtended(requested) {
			c = append(c, requested)
		}
	}
	slices.Sort(c)
	return slices.Compact(c)
}

// CountedIn returns the entries of a quota that [CountedBy] is about; nil if there are none.
func CountedIn(quota corev1.ResourceList) (entries corev1.ResourceList) {
	for name, amount := range quota {
		if len(CountedBy(corev1.ResourceList{name: amount})) == 0 {
			continue
		}
		if entries == nil {
			entries = corev1.ResourceList{}
		}
		entries[name] = amount
	}
	return entries
}

// Allows reports whether containers may request a resource.
func (c Counted) Allows(name corev1.ResourceName) bool {
	return name == corev1.ResourceCPU || name == corev1.ResourceMemory || name == corev1.ResourceEphemeralStorage ||
		slices.Contains(c, name) && !strings.HasSuffix(string(name), corev1.ResourceClaimsPerClass)
}

// AllowsClass reports whether claims may request devices of a class.
func (c Counted) AllowsClass(class string) bool { return slices.Contains(c, ClassQuotaName(class)) }

// AllowsClaims reports whether claims may request devices of any class.
func (c Counted) AllowsClaims() bool {
	return slices.ContainsFunc(c, func(name corev1.ResourceName) bool {
		return strings.HasSuffix(string(name), corev1.ResourceClaimsPerClass)
	})
}

// Strings returns the form that the host's admission policies read: names of resources, and class:CLASS.
func (c Counted) Strings() (out []string) {
	for _, name := range c {
		if class, ok := strings.CutSuffix(string(name), corev1.ResourceClaimsPerClass); ok {
			out = append(out, CountedClass+class)
			continue
		}
		out = append(out, string(name))
	}
	return out
}

// CountedClass is before the name of a class in [Counted.Strings]. No name of a resource contains a colon.
const CountedClass = "class:"

// QuotaName returns the name by which a quota counts what containers request of a resource.
func QuotaName(name corev1.ResourceName) corev1.ResourceName {
	return corev1.DefaultResourceRequestsPrefix + name
}

func isHugePages(name corev1.ResourceName) bool {
	return strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix)
}

// isExtended reports whether quotas count a resource as an extended one, as upstream's evaluator of pods decides.
func isExtended(name corev1.ResourceName) bool {
	if strings.HasPrefix(string(name), resourcev1.ResourceDeviceClassPrefix) { // a device of a class
		return true
	}
	return strings.Contains(string(name), "/") && !strings.Contains(string(name), corev1.ResourceDefaultNamespacePrefix) &&
		!strings.HasPrefix(string(name), corev1.DefaultResourceRequestsPrefix)
}

// CountedNames returns the resources of [CountedIn] without amounts. The API server of a space decides by the names; the amounts are for
// the host.
func CountedNames(quota corev1.ResourceList) corev1.ResourceList {
	names := CountedIn(quota)
	for name := range names {
		names[name] = resource.Quantity{}
	}
	return names
}
