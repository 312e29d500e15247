// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package translate

import corev1 "k8s.io/api/core/v1"

// Settings are what the platform's admin may decide about a space's objects on the
// host. The zero value is the defaults.
type Settings struct {
	// PodSecurity is how much the space's pods may do on the host's nodes.
	PodSecurity PodSecurity
	// ShowNodeAddresses passes on the addresses of nodes in the statuses of services,
	// ingresses and gateways, for hosts whose controllers publish them on purpose.
	ShowNodeAddresses bool
	// ReservedLabels are keys of pods' labels, besides [DefaultReservedLabels], that
	// stay off the host under their own names. One that ends in a dot stands for all
	// keys that begin with it, one with a slash for itself, and any other is a domain,
	// with all below it.
	ReservedLabels []string
	// Domains are those that the host names of the space's ingresses, gateways and
	// routes must be in, or equal: "example.com". Any if there are none.
	Domains []string
	// DefaultLimits are those that the host gives a container without limits: [DefaultLimits] if nil.
	DefaultLimits corev1.ResourceList
}
