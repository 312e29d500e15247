// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package isolation_test

import (
	"net/netip"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berth-dev/berth/internal/netrange"
	"github.com/berth-dev/berth/isolation"
)

// T3 (finding S6): what the host says of its own public addresses is closed to
// spaces; what is closed anyway is not named again.
func TestTheHostsOwnRangesAreFound(t *testing.T) {
	c, ctx := startHost(t), t.Context()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "public"}, Spec: corev1.NodeSpec{PodCIDR: "198.51.100.0/24", PodCIDRs: []string{"198.51.100.0/24", "2001:db8:1::/64"}}}
	if err := c.Create(ctx, node); err != nil {
		t.Fatal(err)
	}
	node.Status.Addresses = []corev1.NodeAddress{
		{Type: corev1.NodeInternalIP, Address: "10.0.0.7"}, {Type: corev1.NodeExternalIP, Address: "203.0.113.7"},
		{Type: corev1.NodeExternalIP, Address: "198.51.100.9"}, {Type: corev1.NodeHostName, Address: "public.example.com"},
	}
	node.ResourceVersion = "" // whatever the host's controllers write meanwhile
	if err := c.Status().Update(ctx, node); err != nil {
		t.Fatal(err)
	}
	found, err := isolation.HostRanges(ctx, c)
	if err != nil {
		t.Fatal(err)
	}
	// The last is where this host's own API is.
	want := []string{"198.51.100.0/24", "2001:db8:1::/64", "203.0.113.7/32", "192.0.2.1/32"}
	if got := netrange.Strings(found); !slices.Equal(slices.Sorted(slices.Values(got)), slices.Sorted(slices.Values(want))) {
		t.Errorf("found %v, want %v", got, want)
	}
}

func TestRangesAreJoinedToTheLargest(t *testing.T) {
	var ranges []netip.Prefix
	for _, text := range []string{"203.0.113.7/32", "203.0.113.0/24", "203.0.113.0/24", "10.1.0.0/16", "2001:db8::/32", "2001:db8:1::/48", "169.254.1.0/24"} {
		ranges = append(ranges, netip.MustParsePrefix(text))
	}
	if got, want := netrange.Strings(isolation.JoinRanges(ranges)), []string{"203.0.113.0/24", "2001:db8::/32"}; !slices.Equal(got, want) {
		t.Errorf("joined to %v, want %v", got, want)
	}
}
