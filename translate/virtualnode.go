// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package translate

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TaintClosed is on the virtual node of a node on which the host places no new pods
// of the space.
const TaintClosed = Domain + "/closed"

// NodeView is what a virtual node tells of the host's node beyond its alias.
type NodeView struct {
	// Labels that tenants may select nodes by.
	Labels map[string]string
	// Closed is empty if the host places new pods of the space there, NoSchedule if
	// it does not, and NoExecute if the node is not the space's any more, so that
	// pods of DaemonSets are to leave it.
	Closed corev1.TaintEffect
}

// Equal reports whether both tell the same.
func (n NodeView) Equal(o NodeView) bool {
	return n.Closed == o.Closed && maps.Equal(n.Labels, o.Labels)
}

// Restate has a virtual node tell n in place of what it told before.
func (n NodeView) Restate(node *corev1.Node) {
	node.Labels = map[string]string{corev1.LabelOSStable: string(corev1.Linux)}
	maps.Copy(node.Labels, n.Labels)
	maps.Copy(node.Labels, map[string]string{corev1.LabelHostname: node.Name, LabelManagedBy: ManagedBy})
	node.Spec.Taints = nil
	if n.Closed != "" {
		node.Spec.Taints = []corev1.Taint{{Key: TaintClosed, Effect: n.Closed}}
	}
}

// VirtualNode is the node that a space may see in place of one of the host's (N1):
// its alias, its view, and what is the same for all of them. release is the
// Kubernetes release of the space itself.
//
// It has a capacity because clients divide by it. The figures are round, so that
// nobody takes them for a node's.
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

// IsVirtualNode tells whether have is what [VirtualNode] makes of its name and view,
// whenever that was.
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
