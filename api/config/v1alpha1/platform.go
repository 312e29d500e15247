// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berth-dev/berth/api/v1alpha1"
)

// PlatformConfiguration says what a platform's spaces are. All of it is optional.
//
// +kubebuilder:object:root=true
type PlatformConfiguration struct {
	metav1.TypeMeta `json:",inline"`

	// spaceDefaults are what spaces are that don't say otherwise. Isolation, deletionPolicy, and paused are each space's own.
	// +optional
	SpaceDefaults v1alpha1.SpaceSpec `json:"spaceDefaults,omitzero"`
	// allowedSync is how much of a resource spec.sync of a space may have synced with the host, where that is more than
	// spaceDefaults.sync says. The platform's watches and rights on the host are for that.
	// +optional
	// +listType=map
	// +listMapKey=resource
	AllowedSync []v1alpha1.SyncOption `json:"allowedSync,omitempty"`
	// spaces are applied as Space objects of the host at each start, besides those that flags name. Each needs metadata.name only.
	// +optional
	// +listType=map
	// +listMapKey=metadata.name
	Spaces []v1alpha1.Space `json:"spaces,omitempty"`
	// ingressAnnotations are the keys of annotations that are synced with Ingresses. Tenants give commands to the host's
	// ingress controller by them. Defaults to none.
	// +optional
	// +listType=set
	IngressAnnotations []string `json:"ingressAnnotations,omitempty"`
	// reservedLabels are domains, prefixes that end in a dot, or keys of labels that controllers of the host act on. The pods
	// of spaces have other keys in their place on the host. Defaults to those that Berth knows.
	// +optional
	// +listType=set
	ReservedLabels []string `json:"reservedLabels,omitempty"`
	// nodeAddresses says whether tenants see the addresses of nodes in the statuses of Services, Ingresses, and Gateways.
	// Defaults to Hidden.
	// +optional
	NodeAddresses Visibility `json:"nodeAddresses,omitempty"`
}

// Visibility says whether tenants see something of the host.
//
// +kubebuilder:validation:Enum=Hidden;Visible
type Visibility string

// Visibilities.
const (
	Hidden  Visibility = "Hidden"
	Visible Visibility = "Visible"
)
