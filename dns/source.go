// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package dns

import (
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
)

// Source is what the answers are made of: objects of the host, which record what
// they are in their space. They must not be changed. It is called concurrently,
// once or a few times a query.
type Source interface {
	// SpaceAt is the space whose pod has the address; ok is false if none has, or
	// if it is not certain.
	SpaceAt(addr netip.Addr) (space string, ok bool)
	// PodAt is the pod of the space that has the address, nil if none has.
	PodAt(space string, addr netip.Addr) *corev1.Pod
	// Service is the host object of a space's service, nil if it has none.
	Service(space, namespace, name string) *corev1.Service
	// ServiceAt is the host object of the space's service that has the cluster
	// IP, nil if none has.
	ServiceAt(space string, addr netip.Addr) *corev1.Service
	// Slices are the endpoints of a host service.
	Slices(service *corev1.Service) []*discoveryv1.EndpointSlice
	// SlicesAt are the endpoint slices of the space that list the address.
	SlicesAt(space string, addr netip.Addr) []*discoveryv1.EndpointSlice
	// ServiceOf is the host service that an endpoint slice belongs to, nil if
	// there is none.
	ServiceOf(slice *discoveryv1.EndpointSlice) *corev1.Service
	// HasNamespace reports whether the space is known to have the namespace:
	// whether a service or a pod is in it.
	HasNamespace(space, namespace string) bool
}
