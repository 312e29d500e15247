// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package translate

import (
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/berth-dev/berth/bounds"
)

// CheckEndpointSlice returns an error for each limit that a tenant's slice exceeds.
func CheckEndpointSlice(v *discoveryv1.EndpointSlice) field.ErrorList {
	addresses := 0
	for i := range v.Endpoints {
		addresses += len(v.Endpoints[i].Addresses)
	}
	return checkTargets(field.NewPath("endpoints"), field.NewPath("ports"), addresses, len(v.Ports))
}

// checkTargets limits addresses, ports, and their product, which each node of the host has to program.
func checkTargets(addressesPath, portsPath *field.Path, addresses, ports int) field.ErrorList {
	errs := append(AtMost(addressesPath, addresses, bounds.EndpointAddresses), AtMost(portsPath, ports, bounds.EndpointPorts)...)
	if len(errs) > 0 {
		return errs
	}
	return AtMost(addressesPath, addresses*ports, bounds.EndpointTargets)
}

// CheckEndpoints is [CheckEndpointSlice] for Endpoints, from which Kubernetes makes slices.
func CheckEndpoints(v *corev1.Endpoints) field.ErrorList { //nolint:staticcheck // tenants may still write them
	var errs field.ErrorList
	addresses, targets, path := 0, 0, field.NewPath("subsets")
	for i := range v.Subsets {
		of := len(v.Subsets[i].Addresses) + len(v.Subsets[i].NotReadyAddresses)
		addresses += of
		targets += of * len(v.Subsets[i].Ports)
		errs = append(errs, AtMost(path.Index(i).Child("ports"), len(v.Subsets[i].Ports), bounds.EndpointPorts)...)
	}
	if errs = append(errs, AtMost(path, addresses, bounds.EndpointAddresses)...); len(errs) > 0 {
		return errs
	}
	return AtMost(path, targets, bounds.EndpointTargets)
}

// EndpointSlice returns v's host object: the tenant's addresses, for the host service, without nodes and zones. Entries
// above the limits are dropped: the slice may be older than the check, or mirrored from Endpoints.
func (s Space) EndpointSlice(v *discoveryv1.EndpointSlice) *discoveryv1.EndpointSlice {
	host := &discoveryv1.EndpointSlice{
		ObjectMeta:  s.ObjectMeta(v, LimitSubdomain),
		AddressType: v.AddressType,
	}
	if service := v.Labels[discoveryv1.LabelServiceName]; service != "" {
		host.Labels[discoveryv1.LabelServiceName] = s.HostName(v.Namespace, service, LimitLabel)
	}
	host.Labels[discoveryv1.LabelManagedBy] = "syncer." + Domain
	for i := range v.Ports[:min(len(v.Ports), bounds.EndpointPorts.Max())] {
		host.Ports = append(host.Ports, *v.Ports[i].DeepCopy())
	}
	left := min(bounds.EndpointAddresses.Max(), bounds.EndpointTargets.Max()/max(len(host.Ports), 1))
	for i := range v.Endpoints {
		if left -= len(v.Endpoints[i].Addresses); left < 0 {
			break
		}
		e := v.Endpoints[i].DeepCopy()
		host.Endpoints = append(host.Endpoints, discoveryv1.Endpoint{Addresses: e.Addresses, Conditions: e.Conditions, Hostname: e.Hostname})
	}
	return host
}

// PushEndpointSlice copies the tenant's fields of a slice to have. It reports whether anything differed.
func PushEndpointSlice(want, have *discoveryv1.EndpointSlice) bool {
	changed := PushMeta(want, have)
	if !equality.Semantic.DeepEqual(want.Endpoints, have.Endpoints) || !equality.Semantic.DeepEqual(want.Ports, have.Ports) {
		have.Endpoints, have.Ports, changed = want.Endpoints, want.Ports, true
	}
	return changed
}

// SliceForCreate returns a slice in the form in which it is created on the host: without addresses.
func SliceForCreate(want *discoveryv1.EndpointSlice) *discoveryv1.EndpointSlice {
	created := want.DeepCopy()
	created.Endpoints = nil
	return created
}
