// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package hostcache

import (
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/bounds"
	"github.com/berth-dev/berth/syncer/resources"
	"github.com/berth-dev/berth/translate"
)

// indexHosts is the index of the host's exposures, those of spaces and others, by the host names that they claim.
const indexHosts = "berth.dev/hosts"

func indexClaims(obj any) ([]string, error) {
	o, ok := obj.(client.Object)
	if !ok {
		return nil, nil
	}
	hosts := resources.HostsOf(o)
	if spaceIn(o.GetNamespace()) != "" {
		// The limit applies whoever wrote the object, because this runs with the lock of the index, for which all
		// spaces wait. All claims of the host's admins count.
		hosts = hosts[:min(len(hosts), bounds.IngressHosts.Max())]
	}
	if slices.ContainsFunc(hosts, isWildcard) {
		hosts = append(hosts, wildcards)
	}
	return hosts, nil
}

// wildcards is the key of [indexHosts] for all objects that claim a wildcard. These are objects of the host, because
// spaces may not have wildcards.
const wildcards = "*"

const wildcard = "*."

func isWildcard(name string) bool { return strings.HasPrefix(name, wildcard) }

// Wildcards returns all wildcards that are claimed on the host, without their asterisks. Up to 126 wildcards can cover
// a host name, and a space may ask for thousands of names, but few wildcards exist.
func (h *Host) Wildcards() map[string]bool {
	all := map[string]bool{}
	for _, r := range resources.Exposures() {
		for _, other := range Find[client.Object](h, r.Name, indexHosts, wildcards) {
			for _, name := range resources.HostsOf(other) {
				if rest, is := strings.CutPrefix(name, wildcard); is {
					all[rest] = true
				}
			}
		}
	}
	return all
}

// OwnNames are the host names that an exposure already has on the host.
type OwnNames struct {
	hosts []string // sorted
	since *metav1.Time
}

// NamesOf returns the host names that a host object claims.
func NamesOf(host client.Object) OwnNames {
	since := host.GetCreationTimestamp()
	return OwnNames{resources.HostsOf(host), &since}
}

// of returns since when a host name is claimed; nil if it is not.
func (c OwnNames) of(name string) *metav1.Time {
	if _, has := slices.BinarySearch(c.hosts, name); !has {
		return nil
	}
	return c.since
}

// Claimed reports whether an exposure of somebody else has a host name. The first one keeps it. If two claim a name at
// the same moment, neither seems to be the first: both give way, and retry at different times.
func (h *Host) Claimed(name string, wildcards map[string]bool, space translate.Space, own OwnNames) bool {
	since := own.of(name)
	claims := []string{name}
	for _, rest, found := strings.Cut(name, "."); found && len(wildcards) > 0; _, rest, found = strings.Cut(rest, ".") {
		if wildcards[rest] {
			claims = append(claims, wildcard+rest)
		}
	}
	for _, claim := range claims {
		for _, r := range resources.Exposures() {
			for _, other := range Find[client.Object](h, r.Name, indexHosts, claim) {
				if other.GetNamespace() == space.HostNamespace() || other.GetDeletionTimestamp() != nil {
					continue
				}
				if theirs := other.GetCreationTimestamp(); since == nil || !since.Before(&theirs) {
					return true
				}
			}
		}
	}
	return false
}

// claimsOnly returns what syncers need of an exposure that belongs to no space.
func claimsOnly(e *resources.Exposure, object client.Object) client.Object {
	return e.Claim(claimant(object), slices.DeleteFunc(e.Hosts(object), func(host string) bool { return host == "" }))
}

func claimant(o metav1.Object) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: o.GetNamespace(), Name: o.GetName(), UID: o.GetUID(), ResourceVersion: o.GetResourceVersion(),
		CreationTimestamp: o.GetCreationTimestamp(), DeletionTimestamp: o.GetDeletionTimestamp(),
	}
}
