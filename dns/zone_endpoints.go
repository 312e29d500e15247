// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package dns

import (
	"cmp"
	"context"
	"iter"
	"net/netip"
	"slices"
	"strings"

	miekg "github.com/miekg/dns"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/ptr"

	"github.com/berth-dev/berth/translate"
)

// endpoint answers for one endpoint of a service by its name.
func (z zone) endpoint(ctx context.Context, s *corev1.Service, host string, q miekg.Question) answer {
	var all []netip.Addr
	for e := range z.endpoints(ctx, s, z.source.Slices(s)) {
		if z.hostOf(s, e) != host {
			continue
		}
		if all = append(all, e.addr); len(all) == maxAddresses {
			break
		}
	}
	if len(all) == 0 {
		return z.unknown()
	}
	return z.found(addresses(q, all))
}

// endpoint is one address behind a service.
type endpoint struct {
	*discoveryv1.Endpoint
	addr  netip.Addr
	slice *discoveryv1.EndpointSlice
}

// endpoints yields those of a service that are to be shown, of some slices of
// its, in the order of their names: no more than maxScanned are looked at, and
// none when nobody waits for the answer any longer, or when the space has asked
// for too much.
func (z zone) endpoints(ctx context.Context, s *corev1.Service, of []*discoveryv1.EndpointSlice) iter.Seq[endpoint] {
	if !z.look(len(of)) {
		return func(func(endpoint) bool) {}
	}
	all := slices.SortedFunc(slices.Values(of), func(a, b *discoveryv1.EndpointSlice) int { return cmp.Compare(a.Name, b.Name) })
	return func(yield func(endpoint) bool) {
		left := maxScanned
		for _, slice := range all {
			for i := range slice.Endpoints {
				e := &slice.Endpoints[i]
				shown := ptr.Deref(e.Conditions.Ready, true) || s.Spec.PublishNotReadyAddresses
				for _, address := range e.Addresses {
					if left--; left < 0 || ctx.Err() != nil || !z.look(1) {
						return
					}
					addr, err := netip.ParseAddr(address)
					if err != nil || !shown {
						continue // a name, or nonsense
					}
					if !yield(endpoint{e, addr.Unmap(), slice}) {
						return
					}
				}
			}
		}
	}
}

// hostOf is the name of an endpoint below its service's: the host name of a pod
// that says it is in the service's subdomain, as a stateful set's do; or else
// one that is made of its address.
//
// On the host a pod has no subdomain, as there the service has another name.
func (z zone) hostOf(s *corev1.Service, e endpoint) string {
	if host := ptr.Deref(e.Hostname, ""); host != "" {
		return strings.ToLower(host)
	}
	id, _ := translate.IdentityOf(s)
	if pod := z.source.PodAt(id.Space, e.addr); pod != nil && pod.Spec.Hostname != "" {
		if of, ok := translate.IdentityOf(pod); ok && of.Namespace == id.Namespace && pod.Annotations[translate.AnnotationSubdomain] == id.Name {
			return strings.ToLower(pod.Spec.Hostname)
		}
	}
	return z.dashes.Replace(e.addr.String())
}
