// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package hostcache

import (
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/syncer/resources"
)

// indexNode is the index of pods and nodes by the addresses of nodes.
const indexNode = "berth.dev/node"

// IsNode reports whether an address, or a host name, belongs to a node of the host: one on which pods of spaces run,
// or, if nodes are watched, any node.
func (h *Host) IsNode(address string) bool {
	if addr, err := netip.ParseAddr(address); err == nil {
		address = addr.Unmap().String()
	}
	return len(Find[client.Object](h, resources.Pods, indexNode, address)) > 0 || len(Find[*corev1.Node](h, resources.Nodes, indexNode, address)) > 0
}

func nodeAddressesOfPod(pod *corev1.Pod) []string {
	seen := addressSet{}
	for _, ip := range append([]corev1.HostIP{{IP: pod.Status.HostIP}}, pod.Status.HostIPs...) {
		seen.add(ip.IP)
	}
	return seen.all()
}

// nodeAddresses returns the addresses of a node, including its names.
func nodeAddresses(node *corev1.Node) []string {
	seen := addressSet{}
	for _, a := range node.Status.Addresses {
		if seen.add(a.Address); a.Type != corev1.NodeInternalIP && a.Type != corev1.NodeExternalIP {
			seen[a.Address] = struct{}{}
		}
	}
	return seen.all()
}
