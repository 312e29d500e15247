// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// slice is endpoints that a tenant writes: an address of the host's network.
func slice(service string) *discoveryv1.EndpointSlice {
	return &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: service + "-own", Labels: map[string]string{discoveryv1.LabelServiceName: service}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{"10.0.0.1"}}},
		Ports:       []discoveryv1.EndpointPort{{Name: ptr.To("http"), Port: ptr.To[int32](8080)}},
	}
}

// M4: what is reached from outside never leads to endpoints that a tenant writes (CVE-2021-25740).
func TestHostileEndpointsAreNotReachedFromOutside(t *testing.T) {
	t.Parallel()
	b := sharedBerth(t)
	demo, host := b.demo(t), b.host(t)
	ns := demo.namespace(t, "hostile-endpoints")
	for name, of := range map[string]func(*corev1.ServiceSpec){
		"port":     func(s *corev1.ServiceSpec) { s.Type = corev1.ServiceTypeNodePort },
		"balancer": func(s *corev1.ServiceSpec) { s.Type = corev1.ServiceTypeLoadBalancer },
		"own-balancer": func(s *corev1.ServiceSpec) {
			s.Type, s.LoadBalancerClass = corev1.ServiceTypeLoadBalancer, ptr.To("example.com/own")
		},
		"without-ports": func(s *corev1.ServiceSpec) {
			s.Type, s.LoadBalancerClass, s.AllocateLoadBalancerNodePorts = corev1.ServiceTypeLoadBalancer, ptr.To("example.com/own"), ptr.To(false)
		},
	} {
		demo.serve(t, ns, newService(name, of))
		must(demo.DiscoveryV1().EndpointSlices(ns).Create(t.Context(), slice(name), metav1.CreateOptions{}))(t)
		h := must(host.CoreV1().Services(hostNamespace).Get(t.Context(), hostName(ns, name), metav1.GetOptions{}))(t)
		if h.Spec.Selector["berth.dev/nothing"] == "" || h.Spec.LoadBalancerClass != nil {
			t.Errorf("%s is on the host: %+v", name, h.Spec)
		}
	}
	// Endpoints of a service that is not reached from outside go there, and by then so would the others.
	demo.serve(t, ns, newService("inside"))
	must(demo.DiscoveryV1().EndpointSlices(ns).Create(t.Context(), slice("inside"), metav1.CreateOptions{}))(t)
	host.awaitEndpoints(t, hostNamespace, hostName(ns, "inside"), []string{"10.0.0.1"})
	for _, name := range []string{"port", "balancer", "own-balancer", "without-ports"} {
		host.awaitEndpoints(t, hostNamespace, hostName(ns, name), nil)
	}
}

// M4: a load balancer's class is the tenant's own, which a controller in the space serves: the host has no part in it.
func TestALoadBalancerClassIsTheTenantsOwn(t *testing.T) {
	t.Parallel()
	b := sharedBerth(t)
	demo, host := b.demo(t), b.host(t)
	ns := demo.namespace(t, "own-balancer")
	v := demo.serve(t, ns, newService("web", selecting("web"), func(s *corev1.ServiceSpec) {
		s.Type, s.LoadBalancerClass = corev1.ServiceTypeLoadBalancer, ptr.To("example.com/own")
	}))
	h := must(host.CoreV1().Services(hostNamespace).Get(t.Context(), hostName(ns, "web"), metav1.GetOptions{}))(t)
	if err := errors.Join(
		expect("type on the host", h.Spec.Type, corev1.ServiceTypeNodePort), expect("class on the host", ptr.Deref(h.Spec.LoadBalancerClass, ""), ""),
		expect("node port", v.Spec.Ports[0].NodePort, h.Spec.Ports[0].NodePort),
	); err != nil {
		t.Error(err)
	}
	status := []byte(`{"status":{"loadBalancer":{"ingress":[{"ip":"203.0.113.1"}]}}}`)
	must(demo.CoreV1().Services(ns).Patch(t.Context(), "web", types.MergePatchType, status, metav1.PatchOptions{}, "status"))(t)
	change := []byte(`{"spec":{"sessionAffinity":"ClientIP"}}`)
	must(demo.CoreV1().Services(ns).Patch(t.Context(), "web", types.MergePatchType, change, metav1.PatchOptions{}))(t)
	await(t, host.CoreV1().Services(hostNamespace).Get, h.Name, func(h *corev1.Service) error {
		return expect("affinity on the host", h.Spec.SessionAffinity, corev1.ServiceAffinityClientIP)
	})
	v = must(demo.CoreV1().Services(ns).Get(t.Context(), "web", metav1.GetOptions{}))(t)
	if ingress := v.Status.LoadBalancer.Ingress; len(ingress) != 1 || ingress[0].IP != "203.0.113.1" {
		t.Errorf("the status that the tenant wrote is %v", v.Status.LoadBalancer)
	}
	if out, _ := demo.tryKubectl(t, "", "annotate", "service", "web", "-n", ns, "a=b"); !strings.Contains(out, "Warning: spec.loadBalancerClass") {
		t.Errorf("kubectl says %s", out)
	}
}
