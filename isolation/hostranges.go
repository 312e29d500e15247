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

// MaxHostRanges limits the ranges that [HostRanges] returns in addition to private and special ones, because each is an
// exception in every network policy of every space.
const MaxHostRanges = 64

// HostRanges returns the host's own addresses that it can find: those of its services, pods, nodes, and API. It leaves
// out those in ranges that are always closed. If some can't be read, it returns the others and an error.
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
			if err == nil { // the address of a node may be a name
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

// JoinRanges removes ranges that are inside others, or inside ranges that are closed to all spaces. The result is
// sorted, the largest first.
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
