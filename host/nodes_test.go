// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestNodesHaveDistinctNamesAddressesAndPodRanges(t *testing.T) {
	names := map[string]bool{}
	addresses := map[netip.Addr]bool{}
	documentation := netip.MustParsePrefix("192.0.2.0/24")
	var last netip.Prefix
	for _, n := range newNodes(maxNodes) {
		if names[n.name] || addresses[n.address] {
			t.Errorf("node %s with address %s is there twice", n.name, n.address)
		}
		names[n.name], addresses[n.address] = true, true
		if !documentation.Contains(n.address) {
			t.Errorf("address %s of %s is not one of documentation", n.address, n.name)
		}
		if n.pods != n.pods.Masked() || last.IsValid() && last.Overlaps(n.pods) {
			t.Errorf("pod range %s of %s is not a range of its own", n.pods, n.name)
		}
		last = n.pods
	}
}

func TestNodeIsReadyOnlyWithoutTheTaintsThatKeepPodsAway(t *testing.T) {
	condition := func(status corev1.ConditionStatus) []corev1.NodeCondition {
		return []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status}}
	}
	cases := map[string]struct {
		reason string
		node   corev1.Node
		want   bool
	}{
		"New": {
			reason: "a node that kwok has not touched has no conditions",
			node:   corev1.Node{},
		},
		"NotReady": {
			reason: "the condition says no",
			node:   corev1.Node{Status: corev1.NodeStatus{Conditions: condition(corev1.ConditionUnknown)}},
		},
		"Tainted": {
			reason: "the node lifecycle controller has not seen the condition yet",
			node: corev1.Node{
				Spec:   corev1.NodeSpec{Taints: []corev1.Taint{{Key: corev1.TaintNodeNotReady}}},
				Status: corev1.NodeStatus{Conditions: condition(corev1.ConditionTrue)},
			},
		},
		"Ready": {
			reason: "another's taint is no matter of readiness",
			node: corev1.Node{
				Spec:   corev1.NodeSpec{Taints: []corev1.Taint{{Key: "example.com/gpu"}}},
				Status: corev1.NodeStatus{Conditions: condition(corev1.ConditionTrue)},
			},
			want: true,
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if got := isReady(&c.node); got != c.want {
				t.Errorf("isReady() = %v, want %v: %s", got, c.want, c.reason)
			}
		})
	}
}
