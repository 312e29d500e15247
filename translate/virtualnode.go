// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package translate

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TaintClosed is the taint of virtual nodes on which the host places no new pods of the space.
const TaintClosed = Domain + "/closed"

// NodeView is what a virtual node shows of the host's node, in addition to its alias.
type NodeView struct {
	// Labels are those that tenants may use in node selectors.
	Labels map[string]string
	// Closed is empty if the host places new pods of the space on the node. It is NoSchedule if it does not, and
	// NoExecute if the node no longer belongs to the space, so that pods of DaemonSets must leave it.
	Closed corev1.TaintEffect
}

// Equal reports whether both views are equal.
func (n NodeView) Equal(o NodeView) bool {
	return n.Closed == o.Closed && maps.Equal(n.Labels, o.Labels)
}

// Restate changes a virtual node to show n.
func (n NodeView) Restate(node *corev1.Node) {
	node.Labels = map[string]string{corev1.LabelOSStable: string(corev1.Linux)}
	maps.Copy(node.Labels, n.Labels)
	maps.Copy(node.Labels, map[string]string{corev1.LabelHostname: node.Name, LabelManagedBy: ManagedBy})
	node.Spec.Taints = nil
	if n.Closed != "" {
		node.Spec.Taints = []corev1.Taint{{Key: TaintClosed, Effect: n.Closed}}
	}
}

// VirtualNode returns the node that a space sees in place of a node of the host (N1): its alias, its view, and fixed
// values. release is the Kubernetes release of the space.
//
// It has a capacity because clients divide by it. The numbers are round, so that nobody mistakes them for those of a
// real node.
func VirtualNode(alias, release string, since metav1.Time, view NodeView) *corev1.Node {
	many, much := resource.MustParse("1k"), resource.MustParse("1000Gi")
	capacity := corev1.ResourceList{
		corev1.ResourceCPU: many, corev1.ResourceMemory: much, corev1.ResourceEphemeralStorage: much, corev1.ResourcePods: many,
	}
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: alias},
		Status: corev1.NodeStatus{
			Capacity: capacity, Allocatable: capacity.DeepCopy(),
			Conditions: []corev1.NodeCondition{{
				Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastHeartbeatTime: since, LastTransitionTime: since,
				Reason: "StandIn", Message: "stands in for a node of the host: its pods tell how it does, and its capacity is a nominal figure",
			}},
			NodeInfo: corev1.NodeSystemInfo{KubeletVersion: release, OperatingSystem: string(corev1.Linux)},
		},
	}
	view.Restate(node)
	return node
}

// IsVirtualNode reports whether have is what [VirtualNode] returns for its name and view, at any time.
func IsVirtualNode(have *corev1.Node, release string, view NodeView) bool {
	since := metav1.Time{}
	if len(have.Status.Conditions) > 0 {
		since = have.Status.Conditions[0].LastTransitionTime
	}
	want := VirtualNode(have.Name, release, since, view)
	return len(have.Annotations) == 0 && len(have.Finalizers) == 0 && len(have.OwnerReferences) == 0 &&
		equality.Semantic.DeepEqual(want.Labels, have.Labels) &&
		equality.Semantic.DeepEqual(want.Spec, have.Spec) && equality.Semantic.DeepEqual(want.Status, have.Status)
}

// AddressSet reports whether an address, or a host name, is in a set.
type AddressSet func(address string) bool

// withoutNodes removes the entries of a status that have an address of a host's node (N1). Some controllers publish the
// addresses of nodes instead of an address of their own.
func withoutNodes[T any](s Space, list []T, nodes AddressSet, addresses func(T) []string) []T {
	if s.Settings.ShowNodeAddresses || nodes == nil {
		return list
	}
	return slices.DeleteFunc(list, func(item T) bool { return slices.ContainsFunc(addresses(item), nodes) })
}
