// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

const (
	// simulatedLabel marks the nodes that this package made and simulates.
	simulatedLabel = "host.berth.dev/simulated"

	nodeNamePrefix = "host-node-"
	// maxNodes is bounded by the node addresses, 192.0.2.1 to 192.0.2.254.
	maxNodes    = 254
	podsPerNode = 250
	// podRangeBits leaves a node four times as many addresses as pods: those
	// of finished pods are freed a little later than the scheduler takes the
	// pods' places to be free.
	podRangeBits = 22
)

// node is a simulated node: what about it follows from its number.
type node struct {
	name    string
	zone    string
	address netip.Addr
	pods    netip.Prefix
}

// newNode returns the i-th node, i from 1 to maxNodes. Node addresses are of
// TEST-NET-1 (RFC 5737), which no real network uses.
func newNode(i int) node {
	const podsOfAll = 10<<24 | 244<<16 // 10.244.0.0
	first := uint32(podsOfAll + (i-1)<<(32-podRangeBits))
	return node{
		name:    nodeNamePrefix + strconv.Itoa(i),
		zone:    "host-zone-" + string(rune('a'+(i-1)%3)),
		address: netip.AddrFrom4([4]byte{192, 0, 2, byte(i)}),
		pods: netip.PrefixFrom(netip.AddrFrom4([4]byte{
			byte(first >> 24), byte(first >> 16), byte(first >> 8), byte(first),
		}), podRangeBits),
	}
}

func newNodes(count int) []node {
	nodes := make([]node, count)
	for i := range nodes {
		nodes[i] = newNode(i + 1)
	}
	return nodes
}

// object returns the Node as a kubelet would register it. It becomes Ready by
// kwok's stage for new nodes.
func (n node) object() *corev1.Node {
	resources := corev1.ResourceList{
		corev1.ResourceCPU:              resource.MustParse("32"),
		corev1.ResourceMemory:           resource.MustParse("256Gi"),
		corev1.ResourceEphemeralStorage: resource.MustParse("1Ti"),
		corev1.ResourcePods:             *resource.NewQuantity(podsPerNode, resource.DecimalSI),
	}
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: n.name,
			Labels: map[string]string{
				simulatedLabel:             "true",
				corev1.LabelArchStable:     "amd64",
				corev1.LabelOSStable:       "linux",
				corev1.LabelHostname:       n.name,
				corev1.LabelTopologyZone:   n.zone,
				corev1.LabelTopologyRegion: "host-region",
			},
			Annotations: map[string]string{
				// The mark by which other tools know a node of kwok's.
				"kwok.x-k8s.io/node": "fake",
			},
		},
		Spec: corev1.NodeSpec{
			PodCIDR:  n.pods.String(),
			PodCIDRs: []string{n.pods.String()},
		},
		Status: corev1.NodeStatus{
			Capacity:    resources,
			Allocatable: resources,
			Addresses: []corev1.NodeAddress{
				{Type: corev1.NodeInternalIP, Address: n.address.String()},
				{Type: corev1.NodeHostName, Address: n.name},
			},
			NodeInfo: corev1.NodeSystemInfo{
				Architecture:    "amd64",
				OperatingSystem: "linux",
				OSImage:         "simulated",
			},
		},
	}
}

// ensureNodes creates those of nodes that are absent. One that exists is left
// as it is, whoever changed it.
func ensureNodes(ctx context.Context, client kubernetes.Interface, nodes []node) error {
	for _, n := range nodes {
		_, err := client.CoreV1().Nodes().Create(ctx, n.object(), metav1.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("create node %s: %w", n.name, err)
		}
	}
	return nil
}

// removeSurplusNodes deletes simulated nodes that are not among nodes, and
// their leases: an earlier start on the same store may have had more.
func removeSurplusNodes(ctx context.Context, client kubernetes.Interface, nodes []node) error {
	wanted := make(map[string]bool, len(nodes))
	for _, n := range nodes {
		wanted[n.name] = true
	}
	list, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{LabelSelector: simulatedLabel})
	if err != nil {
		return fmt.Errorf("list simulated nodes: %w", err)
	}
	for _, n := range list.Items {
		if wanted[n.Name] || !strings.HasPrefix(n.Name, nodeNamePrefix) {
			continue
		}
		if err := client.CoreV1().Nodes().Delete(ctx, n.Name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("delete surplus node %s: %w", n.Name, err)
		}
		leases := client.CoordinationV1().Leases(corev1.NamespaceNodeLease)
		if err := leases.Delete(ctx, n.Name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("delete lease of surplus node %s: %w", n.Name, err)
		}
	}
	return nil
}

// isReady tells whether n is Ready and the node lifecycle controller has seen
// so: until it has, its taints keep pods away.
func isReady(n *corev1.Node) bool {
	for _, taint := range n.Spec.Taints {
		if taint.Key == corev1.TaintNodeNotReady || taint.Key == corev1.TaintNodeUnreachable {
			return false
		}
	}
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}
