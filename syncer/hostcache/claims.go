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

// indexHosts finds the host's exposures, spaces' or not, by the host names that they
// claim.
const indexHosts = "berth.dev/hosts"

func indexClaims(obj any) ([]string, error) {
	o, ok := obj.(client.Object)
	if !ok {
		return nil, nil
	}
	hosts := resources.HostsOf(o)
	if spaceIn(o.GetNamespace()) != "" {
		// Whoever wrote it: this runs under the index's lock, which all spaces wait
		// for. The host's admins' own claims all count.
		hosts = hosts[:min(len(hosts), bounds.IngressHosts.Max())]
	}
	if slices.ContainsFunc(hosts, isWildcard) {
		hosts = append(hosts, wildcards)
	}
	return hosts, nil
}

// wildcards is where [indexHosts] finds all that claim a wildcard: some of the host's own, as spaces may not.
const wildcards = "*"

const wildcard = "*."

func isWildcard(name string) bool { return strings.HasPrefix(name, wildcard) }

// Wildcards are all that are claimed on the host, without their asterisks. A host name has up to 126 that cover it, and a space may
// ask for thousands of names: few are claimed, if any.
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

// OwnNames are the host names that an exposure has on the host.
type OwnNames struct {
	hosts []string // sorted
	since *metav1.Time
}

// NamesOf are the host names that a host object claims.
func NamesOf(host client.Object) OwnNames {
	since := host.GetCreationTimestamp()
	return OwnNames{resources.HostsOf(host), &since}
}

// of is since when a host name is claimed, nil if it is not.
func (c OwnNames) of(name string) *metav1.Time {
	if _, has := slices.BinarySearch(c.hosts, name); !has {
		return nil
	}
	return c.since
}

// Claimed reports whether an exposure that is not the space's has a host name: who was
// first keeps it. Of two that came in one moment, neither looks like the first;
// both give way, and try again at their own time.
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

// claimsOnly is what syncers must know of an exposure that is no space's.
func claimsOnly(e *resources.Exposure, object client.Object) client.Object {
	return e.Claim(claimant(object), slices.DeleteFunc(e.Hosts(object), func(host string) bool { return host == "" }))
}

func claimant(o metav1.Object) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: o.GetNamespace(), Name: o.GetName(), UID: o.GetUID(), ResourceVersion: o.GetResourceVersion(),
		CreationTimestamp: o.GetCreationTimestamp(), DeletionTimestamp: o.GetDeletionTimestamp(),
	}
}
