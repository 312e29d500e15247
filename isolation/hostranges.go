// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package isolation

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/internal/netrange"
)

// MaxHostRanges bounds the ranges that [HostRanges] finds beside private and special
// ones: each is an exception in every network policy of every space.
const MaxHostRanges = 64

// HostRanges are the host's own addresses, as far as it says: its services', its
// pods', its nodes' and its API's. Those in ranges that are closed anyway are not
// among them. What can't be read is an error, beside what could be.
func HostRanges(ctx context.Context, host client.Client) (ranges []netip.Prefix, err error) {
	var errs []error
	read := func(what string, err error) bool {
		if err != nil {
			errs = append(errs, fmt.Errorf("read the host's %s: %w", what, err))
		}
		return err == nil
	}
	add := func(texts ...string) {
		for _, text := range texts {
			prefix, err := netip.ParsePrefix(text)
			if address, single := netip.ParseAddr(text); single == nil {
				address = address.Unmap().WithZone("")
				prefix, err = netip.PrefixFrom(address, address.BitLen()), nil
			}
			if err == nil { // a node's address may be a name
				ranges = append(ranges, prefix.Masked())
			}
		}
	}
	services := &networkingv1.ServiceCIDR{}
	if read("ServiceCIDR", host.Get(ctx, client.ObjectKey{Name: "kubernetes"}, services)) {
		add(services.Spec.CIDRs...)
	}
	endpoints := &discoveryv1.EndpointSliceList{}
	if read("API endpoints", host.List(ctx, endpoints, client.InNamespace(metav1.NamespaceDefault), client.MatchingLabels{discoveryv1.LabelServiceName: "kubernetes"})) {
		for _, slice := range endpoints.Items {
			for _, e := range slice.Endpoints {
				add(e.Addresses...)
			}
		}
	}
	nodes := &corev1.NodeList{}
	if read("nodes", host.List(ctx, nodes)) {
		for i := range nodes.Items {
			add(nodes.Items[i].Spec.PodCIDRs...)
			for _, a := range nodes.Items[i].Status.Addresses {
				add(a.Address)
			}
		}
	}
	ranges = JoinRanges(ranges)
	if len(ranges) > MaxHostRanges {
		errs = append(errs, fmt.Errorf("the host has %d ranges of public addresses, at most %d are closed; close larger ones that hold them", len(ranges), MaxHostRanges))
		ranges = ranges[:MaxHostRanges]
	}
	return ranges, errors.Join(errs...)
}

// JoinRanges are ranges without those that lie in others of them, or in those that
// are closed to all spaces, the largest first.
func JoinRanges(ranges []netip.Prefix) (out []netip.Prefix) {
	slices.SortFunc(ranges, func(a, b netip.Prefix) int {
		if a.Bits() != b.Bits() {
			return a.Bits() - b.Bits()
		}
		return a.Addr().Compare(b.Addr())
	})
	closed := netrange.Closed()
	for _, r := range ranges {
		within := func(outer netip.Prefix) bool { return outer.Bits() <= r.Bits() && outer.Overlaps(r) }
		if !slices.ContainsFunc(closed, within) && !slices.ContainsFunc(out, within) {
			out = append(out, r)
		}
	}
	return out
}
