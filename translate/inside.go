// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package translate

import (
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// Names of Berth's own objects for pods in each space's host namespace. The host name of a virtual object contains two
// consecutive dashes, so it never equals one of these.
const (
	DNSServiceName   = "berth-dns"
	APIEndpointsName = "berth-api"
)

// PodsEndpoint is where pods reach Berth, for the DNS and the API of their space.
type PodsEndpoint struct {
	// Address is the address as pods see it. Berth must also see the pods' own addresses, because it recognizes their
	// spaces by them. Its IP family must be the default family of the host's services; otherwise, the services can't
	// route to it. While it is not valid, pods have neither DNS nor API.
	Address netip.Addr
	// APIPort and DNSPort are the ports at which Berth listens. Pods use the standard ports of services that route
	// there.
	APIPort, DNSPort int32
	// Namespace and Labels select the pods on the host that have Address. They are empty if it is not the address of a
	// pod.
	Namespace string
	Labels    map[string]string
}

// Valid reports whether there is an address.
func (e PodsEndpoint) Valid() bool { return e.Address.IsValid() }

// DNSService returns the host service whose cluster IP is the nameserver of the space's pods. It has no virtual object:
// tenants see it only in resolv.conf.
func (s Space) DNSService() *corev1.Service {
	return &corev1.Service{
		ObjectMeta: s.insideMeta(DNSServiceName),
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeClusterIP,
			Ports: []corev1.ServicePort{
				{Name: "dns", Protocol: corev1.ProtocolUDP, Port: 53},
				{Name: "dns-tcp", Protocol: corev1.ProtocolTCP, Port: 53},
			},
		},
	}
}

// PodsEndpoints returns the endpoint slices that route the host services of the space's DNS and API to Berth.
func (s Space) PodsEndpoints() []*discoveryv1.EndpointSlice {
	return []*discoveryv1.EndpointSlice{
		s.toPodsEndpoint(DNSServiceName, DNSServiceName,
			discoveryv1.EndpointPort{Name: ptr.To("dns"), Protocol: ptr.To(corev1.ProtocolUDP), Port: ptr.To(s.Pods.DNSPort)},
			discoveryv1.EndpointPort{Name: ptr.To("dns-tcp"), Protocol: ptr.To(corev1.ProtocolTCP), Port: ptr.To(s.Pods.DNSPort)}),
		s.toPodsEndpoint(APIEndpointsName, s.HostName(metav1.NamespaceDefault, "kubernetes", LimitLabel),
			discoveryv1.EndpointPort{Name: ptr.To("https"), Protocol: ptr.To(corev1.ProtocolTCP), Port: ptr.To(s.Pods.APIPort)}),
	}
}

func (s Space) toPodsEndpoint(name, service string, ports ...discoveryv1.EndpointPort) *discoveryv1.EndpointSlice {
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta:  s.insideMeta(name),
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{s.Pods.Address.String()}, Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(true)}}},
		Ports:       ports,
	}
	if s.Pods.Address.Is6() {
		slice.AddressType = discoveryv1.AddressTypeIPv6
	}
	slice.Labels[discoveryv1.LabelServiceName] = service
	slice.Labels[discoveryv1.LabelManagedBy] = "syncer." + Domain
	return slice
}

// insideMeta returns metadata without a virtual identity, so that syncers ignore the object.
func (s Space) insideMeta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: s.HostNamespace(), Name: name,
		Labels: map[string]string{LabelManagedBy: ManagedBy, LabelSpace: s.Name},
	}
}
