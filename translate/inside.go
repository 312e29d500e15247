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

// Names of what stands in each space's host namespace for its pods. A virtual
// object's host name holds two dashes in a row, so that none meets these.
const (
	DNSServiceName   = "berth-dns"
	APIEndpointsName = "berth-api"
)

// PodsEndpoint is where pods reach Berth: the DNS of their space, and its API.
type PodsEndpoint struct {
	// Address as pods see it. Berth must see theirs, too: by them it tells spaces
	// apart. It is of the family that the host's services have by default, or
	// their addresses would not lead to it. While it is not valid, pods reach
	// neither.
	Address netip.Addr
	// APIPort and DNSPort are Berth's. Pods use the usual ones, at the addresses
	// of services that lead there.
	APIPort, DNSPort int32
	// Namespace and Labels select the pods on the host that Address is of. They are empty if it is none of a pod.
	Namespace string
	Labels    map[string]string
}

// Valid reports whether there is one.
func (e PodsEndpoint) Valid() bool { return e.Address.IsValid() }

// DNSService is the host service whose cluster IP is the nameserver of the
// space's pods. It is no virtual object's: tenants see it in a resolv.conf only.
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

// PodsEndpoints lead the host services of the space's DNS and of its API to
// Berth.
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

// insideMeta records no virtual identity, so that syncers leave it alone.
func (s Space) insideMeta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: s.HostNamespace(), Name: name,
		Labels: map[string]string{LabelManagedBy: ManagedBy, LabelSpace: s.Name},
	}
}
