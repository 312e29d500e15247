// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package translate

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// StandIn is the node that a space may see in place of one of the host's (N1):
// its pseudonym, and what is the same for all of them. release is the
// Kubernetes release of the space itself.
//
// It has a capacity because clients divide by it. The figures are round, so that
// nobody takes them for a node's.
func StandIn(pseudonym, release string, since metav1.Time) *corev1.Node {
	many, much := resource.MustParse("1k"), resource.MustParse("1000Gi")
	capacity := corev1.ResourceList{
		corev1.ResourceCPU: many, corev1.ResourceMemory: much, corev1.ResourceEphemeralStorage: much, corev1.ResourcePods: many,
	}
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: pseudonym, Labels: map[string]string{
			corev1.LabelHostname: pseudonym, corev1.LabelOSStable: string(corev1.Linux), LabelManagedBy: ManagedBy,
		}},
		Status: corev1.NodeStatus{
			Capacity: capacity, Allocatable: capacity.DeepCopy(),
			Conditions: []corev1.NodeCondition{{
				Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastHeartbeatTime: since, LastTransitionTime: since,
				Reason: "StandIn", Message: "stands in for a node of the host: its pods tell how it does, and its capacity is a nominal figure",
			}},
			NodeInfo: corev1.NodeSystemInfo{KubeletVersion: release, OperatingSystem: string(corev1.Linux)},
		},
	}
}

// IsStandIn tells whether have is what [StandIn] makes of its name, whenever that
// was.
func IsStandIn(have *corev1.Node, release string) bool {
	since := metav1.Time{}
	if len(have.Status.Conditions) > 0 {
		since = have.Status.Conditions[0].LastTransitionTime
	}
	want := StandIn(have.Name, release, since)
	return len(have.Annotations) == 0 && len(have.Finalizers) == 0 && len(have.OwnerReferences) == 0 &&
		equality.Semantic.DeepEqual(want.Labels, have.Labels) &&
		equality.Semantic.DeepEqual(want.Spec, have.Spec) && equality.Semantic.DeepEqual(want.Status, have.Status)
}
