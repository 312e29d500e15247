// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import corev1 "k8s.io/api/core/v1"

// Nodes are nodes of the host.
//
// +kubebuilder:validation:MinProperties=1
type Nodes struct {
	// selector are labels of the nodes that the space's pods run on. They run on all nodes if it is not set.
	// +optional
	// +kubebuilder:validation:MinProperties=1
	// +kubebuilder:validation:MaxProperties=32
	Selector map[string]string `json:"selector,omitempty"`
	// allowedLabels are keys of the nodes' labels by which the space's pods may select nodes. The API server of the space
	// rejects node selectors and node affinity with other keys.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=317
	// +kubebuilder:validation:XValidation:rule="!self.exists(key, key == 'kubernetes.io/hostname')",message="kubernetes.io/hostname would reveal the names of nodes; use a label that several nodes share"
	AllowedLabels []string `json:"allowedLabels,omitempty"`
	// tolerations are added to the space's pods, so that they run on nodes with these taints.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	Tolerations []Toleration `json:"tolerations,omitempty"`
}

// Toleration is that of a taint of nodes.
type Toleration struct {
	// key is the key of the taint.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	Key string `json:"key,omitempty"`
	// operator is Equal for taints with the value, and Exists for taints with any value. Defaults to Equal.
	// +optional
	// +kubebuilder:validation:Enum=Equal;Exists
	Operator corev1.TolerationOperator `json:"operator,omitempty"`
	// value is the value of the taint. It is not set with the operator Exists.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Value string `json:"value,omitempty"`
	// effect is the effect of the taint.
	// +required
	// +kubebuilder:validation:Enum=NoSchedule;PreferNoSchedule;NoExecute
	Effect corev1.TaintEffect `json:"effect,omitempty"`
}

// Priority is which PriorityClasses of the host a space's pods have, and whether they preempt other pods.
//
// +kubebuilder:validation:MinProperties=1
type Priority struct {
	PriorityClasses `json:",inline"`
	// preemption says whether pods of the space preempt pods with a lower priority when no node fits. Disabled: they
	// preempt no pod of a space. OwnNodes: they do, because nodes.selector selects nodes on which no pods of other tenants
	// run. Defaults to Disabled.
	// +optional
	Preemption Preemption `json:"preemption,omitempty"`
}

// PriorityClasses are PriorityClasses of the host.
//
// +kubebuilder:validation:MinProperties=1
type PriorityClasses struct {
	// allowedClasses are names of PriorityClasses of the host, among those that spaces import. The space imports no others,
	// and its pods have no others on the host. If it is not set, the space imports all that the sync option priorityclasses
	// selects.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	AllowedClasses []string `json:"allowedClasses,omitempty"`
	// defaultClass is the PriorityClass on the host of pods that have none there otherwise. It need not be imported. If it is
	// not set, it is that of the host.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	DefaultClass string `json:"defaultClass,omitempty"`
}

// Preemption says which pods a space's pods preempt.
//
// +kubebuilder:validation:Enum=Disabled;OwnNodes
type Preemption string

// Preemptions.
const (
	PreemptionDisabled Preemption = "Disabled"
	PreemptionOwnNodes Preemption = "OwnNodes"
)
