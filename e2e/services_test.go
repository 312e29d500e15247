// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
)

func newService(name string, change ...func(*corev1.ServiceSpec)) *corev1.Service {
	s := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "http", Port: 80, TargetPort: intstr.FromInt32(8080)}}},
	}
	for _, f := range change {
		f(&s.Spec)
	}
	return s
}

func selecting(app string) func(*corev1.ServiceSpec) {
	return func(s *corev1.ServiceSpec) { s.Selector = map[string]string{"app": app} }
}

// serve creates a service, and returns it as the API first answers.
func (c *cluster) serve(t *testing.T, ns string, service *corev1.Service) *corev1.Service {
	t.Helper()
	return must(c.CoreV1().Services(ns).Create(t.Context(), service, metav1.CreateOptions{}))(t)
}

// awaitEndpoints returns once a service has these addresses, sorted.
func (c *cluster) awaitEndpoints(t *testing.T, namespace, service string, want []string) {
	t.Helper()
	slices.Sort(want)
	eventually(t, func() error {
		slices, err := c.DiscoveryV1().EndpointSlices(namespace).List(t.Context(), metav1.ListOptions{
			LabelSelector: discoveryv1.LabelServiceName + "=" + service,
		})
		if err != nil {
			return err
		}
		return expect("addresses of service "+service, strings.Join(readyAddresses(slices.Items), " "), strings.Join(want, " "))
	})
}

func readyAddresses(all []discoveryv1.EndpointSlice) (addresses []string) {
	for _, slice := range all {
		for _, e := range slice.Endpoints {
			if e.Conditions.Ready == nil || *e.Conditions.Ready {
				addresses = append(addresses, e.Addresses...)
			}
		}
	}
	slices.Sort(addresses)
	return addresses
}

// S1, S2, S3: a service has, from its first moment, the host's addresses.
func TestAServiceIsTheSameOnBothSides(t *testing.T) {
	t.Parallel()
	b := sharedBerth(t)
	demo, host := b.demo(t), b.host(t)
	ns := demo.namespace(t, "services")
	demo.kubectl(t, "create", "deployment", "web", "--image=nginx", "--replicas=2", "-n", ns)
	var addresses []string
	for _, pod := range demo.awaitPods(t, ns, "app=web", 2) {
		addresses = append(addresses, pod.Status.PodIP)
	}
	// Pods of other namespaces match the selector, too, and take no part.
	other := demo.namespace(t, "services-other")
	demo.run(t, other, newPod("decoy", func(p *corev1.Pod) { p.Labels = map[string]string{"app": "web"} }))

	for name, change := range map[string]func(*corev1.ServiceSpec){
		"plain":    func(*corev1.ServiceSpec) {},
		"headless": func(s *corev1.ServiceSpec) { s.ClusterIP = corev1.ClusterIPNone },
		"port":     func(s *corev1.ServiceSpec) { s.Type = corev1.ServiceTypeNodePort },
	} {
		t.Run(name, func(t *testing.T) {
			v := demo.serve(t, ns, newService(name, selecting("web"), change))
			h := must(host.CoreV1().Services(hostNamespace).Get(t.Context(), hostName(ns, name), metav1.GetOptions{}))(t)
			if v.Spec.ClusterIP == "" || v.Spec.ClusterIP != h.Spec.ClusterIP || v.Spec.Ports[0].NodePort != h.Spec.Ports[0].NodePort {
				t.Errorf("service has address %s and port %d, on the host %s and %d", v.Spec.ClusterIP, v.Spec.Ports[0].NodePort, h.Spec.ClusterIP, h.Spec.Ports[0].NodePort)
			}
			if hasPort := v.Spec.Ports[0].NodePort != 0; hasPort != (name == "port") {
				t.Errorf("node port of service %s is %d", name, v.Spec.Ports[0].NodePort)
			}
			await(t, host.CoreV1().Services(hostNamespace).Get, h.Name, func(h *corev1.Service) error {
				return expect("what the host service records", identityOf(h), identity{"demo", ns, name, v.UID})
			})
			demo.awaitEndpoints(t, ns, name, addresses)
			host.awaitEndpoints(t, hostNamespace, h.Name, addresses)
			demo.kubectl(t, "delete", "service", name, "-n", ns)
			awaitGone(t, "host service", host.CoreV1().Services(hostNamespace).Get, h.Name)
		})
	}
}

// S1, S2: changes follow, and the host's load balancer is seen.
func TestAServicesChangesFollowBothWays(t *testing.T) {
	t.Parallel()
	b := sharedBerth(t)
	demo, host := b.demo(t), b.host(t)
	ns := demo.namespace(t, "service-changes")
	demo.serve(t, ns, newService("moving", selecting("web")))
	patch := `{"spec":{"type":"LoadBalancer","ports":[{"name":"http","port":80,"targetPort":9090}],"selector":{"app":"other"}}}`
	v := must(demo.CoreV1().Services(ns).Patch(t.Context(), "moving", types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}))(t)
	h := await(t, host.CoreV1().Services(hostNamespace).Get, hostName(ns, "moving"), func(h *corev1.Service) error {
		return errors.Join(
			expect("type", h.Spec.Type, corev1.ServiceTypeLoadBalancer), expect("target port", h.Spec.Ports[0].TargetPort.IntValue(), 9090),
			expect("selector", h.Spec.Selector["app"], "other"), expect("cluster IP", h.Spec.ClusterIP, v.Spec.ClusterIP),
			expect("node port", h.Spec.Ports[0].NodePort, v.Spec.Ports[0].NodePort))
	})
	if v.Spec.Ports[0].NodePort == 0 {
		t.Error("the service has no node port")
	}
	await(t, host.CoreV1().Services(hostNamespace).Get, h.Name, func(h *corev1.Service) error {
		// The host's service was changed before the space's, and may be as it was for a moment, until that is seen.
		h.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "203.0.113.7"}}
		_, err := host.CoreV1().Services(hostNamespace).UpdateStatus(t.Context(), h, metav1.UpdateOptions{})
		return err
	})
	await(t, demo.CoreV1().Services(ns).Get, "moving", func(v *corev1.Service) error {
		if ingress := v.Status.LoadBalancer.Ingress; len(ingress) != 1 || ingress[0].IP != "203.0.113.7" {
			return fmt.Errorf("load balancer has %v", ingress)
		}
		return nil
	})
}

// S1: endpoints that the tenant writes go down, in either form.
func TestEndpointsThatATenantWritesReachTheHost(t *testing.T) {
	t.Parallel()
	b := sharedBerth(t)
	demo, host := b.demo(t), b.host(t)
	ns := demo.namespace(t, "own-endpoints")
	demo.serve(t, ns, newService("by-endpoints"))
	demo.serve(t, ns, newService("by-slice"))
	demo.apply(t, `
apiVersion: v1
kind: Endpoints
metadata: {name: by-endpoints}
subsets: [{addresses: [{ip: 203.0.113.1}, {ip: 203.0.113.2}], ports: [{name: http, port: 8080}]}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: mine, labels: {kubernetes.io/service-name: by-slice}}
addressType: IPv4
endpoints: [{addresses: [203.0.113.3]}]
ports: [{name: http, port: 8080}]
`, "-n", ns)
	host.awaitEndpoints(t, hostNamespace, hostName(ns, "by-endpoints"), []string{"203.0.113.1", "203.0.113.2"})
	host.awaitEndpoints(t, hostNamespace, hostName(ns, "by-slice"), []string{"203.0.113.3"})

	patch := []byte(`[{"op":"replace","path":"/endpoints/0/addresses/0","value":"203.0.113.4"}]`)
	if _, err := demo.DiscoveryV1().EndpointSlices(ns).Patch(t.Context(), "mine", types.JSONPatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	host.awaitEndpoints(t, hostNamespace, hostName(ns, "by-slice"), []string{"203.0.113.4"})

	demo.kubectl(t, "delete", "service", "by-endpoints", "by-slice", "-n", ns)
	demo.kubectl(t, "delete", "endpointslice", "mine", "-n", ns, "--ignore-not-found")
	eventually(t, func() error {
		left, err := host.DiscoveryV1().EndpointSlices(hostNamespace).List(t.Context(), metav1.ListOptions{LabelSelector: labelNamespace + "=" + ns})
		if err != nil {
			return err
		}
		return expect("number of slices left on the host", len(left.Items), 0)
	})
}

// S1, S3, S7: names come and go as on a plain cluster.
func TestServiceNamesAreUsedAgain(t *testing.T) {
	t.Parallel()
	b := sharedBerth(t)
	demo, host := b.demo(t), b.host(t)
	ns := demo.namespace(t, "service-names")
	services, hostServices := demo.CoreV1().Services(ns), host.CoreV1().Services(hostNamespace)

	var last *corev1.Service
	for range 5 {
		last = demo.serve(t, ns, newService("phoenix", selecting("a")))
		if err := services.Delete(t.Context(), "phoenix", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	again := demo.serve(t, ns, newService("phoenix", selecting("b")))
	if again.UID == last.UID {
		t.Error("the service was not deleted")
	}
	await(t, hostServices.Get, hostName(ns, "phoenix"), func(h *corev1.Service) error {
		return errors.Join(
			expect("what it records", identityOf(h), identity{"demo", ns, "phoenix", again.UID}),
			expect("selector", h.Spec.Selector["app"], "b"), expect("cluster IP", h.Spec.ClusterIP, again.Spec.ClusterIP))
	})

	demo.kubectl(t, "create", "service", "clusterip", "once", "--tcp=80:80", "-n", ns)
	once := must(hostServices.Get(t.Context(), hostName(ns, "once"), metav1.GetOptions{}))(t)
	out, err := demo.tryKubectl(t, "", "create", "service", "clusterip", "once", "--tcp=81:81", "-n", ns)
	if err == nil || !strings.Contains(out, "already exists") {
		t.Errorf("creating a service twice says: %s", out)
	}
	unchanged := must(hostServices.Get(t.Context(), hostName(ns, "once"), metav1.GetOptions{}))(t)
	if unchanged.UID != once.UID || unchanged.Spec.Ports[0].Port != 80 {
		t.Errorf("the refused service changed the host's: %+v", unchanged.Spec)
	}

	generated := newService("")
	generated.GenerateName = "some-"
	v := demo.serve(t, ns, generated)
	if h := await(t, hostServices.Get, hostName(ns, v.Name), there); h.Spec.ClusterIP != v.Spec.ClusterIP {
		t.Errorf("service %s has address %s, on the host %s", v.Name, v.Spec.ClusterIP, h.Spec.ClusterIP)
	}
}

// S7: what the space does not keep leaves nothing on the host.
func TestADryRunLeavesNothingOnTheHost(t *testing.T) {
	t.Parallel()
	b := sharedBerth(t)
	demo, host := b.demo(t), b.host(t)
	ns := demo.namespace(t, "dry")
	for _, args := range [][]string{
		{"create", "service", "nodeport", "dry", "--tcp=80:80"}, {"create", "deployment", "dry", "--image=nginx"}, {"run", "dry", "--image=nginx"},
	} {
		demo.kubectl(t, append(args, "--dry-run=server", "-n", ns)...)
	}
	demo.run(t, ns, newPod("wet")) // what came after is on the host
	for what, err := range map[string]error{
		"service": second(host.CoreV1().Services(hostNamespace).Get(t.Context(), hostName(ns, "dry"), metav1.GetOptions{})),
		"pod":     second(host.CoreV1().Pods(hostNamespace).Get(t.Context(), hostName(ns, "dry"), metav1.GetOptions{})),
	} {
		if !apierrors.IsNotFound(err) {
			t.Errorf("a dry run left a %s on the host: %v", what, err)
		}
	}
}
