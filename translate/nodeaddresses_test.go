// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package translate_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/utils/ptr"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/berth-dev/berth/translate/sample"
)

// N1 (S20): controllers that publish their nodes' addresses tell no space of them,
// unless an admin says that they may.
func TestStatusesDoNotTellAddressesOfNodes(t *testing.T) {
	nodes := func(address string) bool {
		return slices.Contains([]string{"10.0.0.9", "fd00::9", "node-9.internal"}, address)
	}
	all := []string{"203.0.113.7", "10.0.0.9", "fd00::9", "node-9.internal", "lb.example.com"}
	service, ingress, gateway := &corev1.Service{}, &networkingv1.Ingress{}, &gatewayv1.Gateway{}
	for i, address := range all {
		isName := i >= 3
		one, other := corev1.LoadBalancerIngress{IP: address}, networkingv1.IngressLoadBalancerIngress{IP: address}
		third := gatewayv1.GatewayStatusAddress{Type: ptr.To(gatewayv1.IPAddressType), Value: address}
		if isName {
			one, other = corev1.LoadBalancerIngress{Hostname: address}, networkingv1.IngressLoadBalancerIngress{Hostname: address}
			third.Type = ptr.To(gatewayv1.HostnameAddressType)
		}
		service.Status.LoadBalancer.Ingress = append(service.Status.LoadBalancer.Ingress, one)
		ingress.Status.LoadBalancer.Ingress = append(ingress.Status.LoadBalancer.Ingress, other)
		gateway.Status.Addresses = append(gateway.Status.Addresses, third)
	}
	for show, want := range map[bool][]string{false: {"203.0.113.7", "lb.example.com"}, true: all} {
		space := sample.Demo()
		space.Settings.ShowNodeAddresses = show
		var ofService, ofIngress, ofGateway []string
		for _, i := range space.PullServiceStatus(service, service, nodes).LoadBalancer.Ingress {
			ofService = append(ofService, i.IP+i.Hostname)
		}
		for _, i := range space.PullIngressStatus(ingress, nodes).LoadBalancer.Ingress {
			ofIngress = append(ofIngress, i.IP+i.Hostname)
		}
		for _, a := range space.PullGatewayStatus(&gatewayv1.Gateway{}, gateway, nodes).Addresses {
			ofGateway = append(ofGateway, a.Value)
		}
		for kind, got := range map[string][]string{"service": ofService, "ingress": ofIngress, "gateway": ofGateway} {
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("shown %t, %s: -want +got:\n%s", show, kind, diff)
			}
		}
	}
	if len(service.Status.LoadBalancer.Ingress) != len(all) {
		t.Error("the host's status was changed")
	}
}
