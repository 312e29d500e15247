// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package syncer_test

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/berth-dev/berth/internal/testhost"
	"github.com/berth-dev/berth/translate"
)

func (env *testEnv) ingressClass(t *testing.T, name string, labels map[string]string) {
	t.Helper()
	classes := env.host.NetworkingV1().IngressClasses()
	must(t, classes.Create, &networkingv1.IngressClass{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}, Spec: networkingv1.IngressClassSpec{Controller: "host.example/controller"},
	})
	t.Cleanup(func() { _ = classes.Delete(context.Background(), name, metav1.DeleteOptions{}) })
}

func importLabel() map[string]string { return map[string]string{"berth.dev/show": "true"} }

func newIngress(name, class, host string) *networkingv1.Ingress {
	return &networkingv1.Ingress{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{"example.com/allowed": "yes", "nginx.ingress.kubernetes.io/server-snippet": "evil"}},
		Spec: networkingv1.IngressSpec{
			IngressClassName: &class,
			TLS:              []networkingv1.IngressTLS{{Hosts: []string{host}, SecretName: name + "-cert"}},
			Rules: []networkingv1.IngressRule{{Host: host, IngressRuleValue: networkingv1.IngressRuleValue{HTTP: &networkingv1.HTTPIngressRuleValue{
				Paths: []networkingv1.HTTPIngressPath{{Path: "/", PathType: ptr.To(networkingv1.PathTypePrefix), Backend: networkingv1.IngressBackend{
					Service: &networkingv1.IngressServiceBackend{Name: "web", Port: networkingv1.ServiceBackendPort{Number: 80}},
				}}},
			}}}},
		},
	}
}

// S1, S2, M4: an ingress goes down with its certificate and comes back with its
// address; one of a class that is not imported does not go.
func TestAnIngressOfAnImportedClassIsServed(t *testing.T) {
	t.Parallel()
	env := synced(t, "ingress")
	env.ingressClass(t, "ingress-public", importLabel())
	env.ingressClass(t, "ingress-internal", nil)
	class := awaited(t, "see the class", env.virtual.NetworkingV1().IngressClasses().Get, "ingress-public", nil)
	if class.Spec.Controller != translate.IngressController {
		t.Errorf("the class tells of the host's controller %q", class.Spec.Controller)
	}
	ours, theirs := env.virtual.NetworkingV1().Ingresses("default"), env.host.NetworkingV1().Ingresses(env.space.HostNamespace())
	must(t, ours.Create, newIngress("shop", "ingress-public", "shop.ingress.example"))
	must(t, env.virtual.CoreV1().Secrets("default").Create, newSecret("shop-cert"))
	host := awaited(t, "see it on the host", theirs.Get, env.hostName("shop"), nil)
	if host.Annotations["example.com/allowed"] != "yes" || host.Annotations["nginx.ingress.kubernetes.io/server-snippet"] != "" {
		t.Errorf("annotations on the host: %v", host.Annotations)
	}
	awaited(t, "see its certificate on the host", env.host.CoreV1().Secrets(env.space.HostNamespace()).Get, env.hostName("shop-cert"), nil)

	host.Status.LoadBalancer.Ingress = []networkingv1.IngressLoadBalancerIngress{{IP: "203.0.113.7"}}
	if _, err := theirs.UpdateStatus(t.Context(), host, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	awaited(t, "see its address", ours.Get, "shop", func(v *networkingv1.Ingress) error {
		if len(v.Status.LoadBalancer.Ingress) != 1 || v.Status.LoadBalancer.Ingress[0].IP != "203.0.113.7" {
			return fmt.Errorf("status is %v", v.Status)
		}
		return nil
	})

	for name, class := range map[string]string{"internal": "ingress-internal", "missing": "no-such"} {
		must(t, ours.Create, newIngress(name, class, name+".ingress.example"))
		env.awaitWarning(t, "Ingress", name, "spec.ingressClassName", class)
		if err := gone(theirs.Get(t.Context(), env.hostName(name), metav1.GetOptions{})); err != nil {
			t.Error(err)
		}
	}
	// What is not allowed any more is taken from the host, and what is taken back.
	classed := func(class string) {
		t.Helper()
		patch := fmt.Appendf(nil, `{"spec":{"ingressClassName":%q}}`, class)
		if _, err := ours.Patch(t.Context(), "shop", types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	classed("ingress-internal")
	awaitedGone(t, "see it gone from the host, as its class is not for spaces", theirs.Get, env.hostName("shop"))
	classed("ingress-public")
	awaited(t, "see it on the host again", theirs.Get, env.hostName("shop"), nil)
	if err := env.host.NetworkingV1().IngressClasses().Delete(t.Context(), "ingress-public", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	awaitedGone(t, "see the class gone", env.virtual.NetworkingV1().IngressClasses().Get, "ingress-public")
	if err := ours.Delete(t.Context(), "shop", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	awaitedGone(t, "see it gone from the host", theirs.Get, env.hostName("shop"))
	awaitedGone(t, "see its certificate gone from the host", env.host.CoreV1().Secrets(env.space.HostNamespace()).Get, env.hostName("shop-cert"))
}

// M4: the host's controller reaches for backends past the space's isolation, so that
// none may lead it out of the space: not by a name, not by endpoints written by
// hand, not to the space's API, and not later either.
func TestNoIngressLeadsOutOfItsSpace(t *testing.T) {
	t.Parallel()
	env := synced(t, "wayout")
	env.ingressClass(t, "wayout-public", importLabel())
	awaited(t, "see the class", env.virtual.NetworkingV1().IngressClasses().Get, "wayout-public", nil)
	services := env.virtual.CoreV1().Services("default")
	ours, theirs := env.virtual.NetworkingV1().Ingresses("default"), env.host.NetworkingV1().Ingresses(env.space.HostNamespace())
	service := func(name string, spec corev1.ServiceSpec) {
		spec.Ports = []corev1.ServicePort{{Port: 80}}
		must(t, services.Create, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec})
	}
	ingress := func(name string) {
		v := newIngress(name, "wayout-public", name+".wayout.example")
		v.Spec.Rules[0].HTTP.Paths[0].Backend.Service.Name = name
		must(t, ours.Create, v)
	}
	elsewhere := corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "metrics-server.kube-system.svc"}
	service("name", elsewhere)
	service("hand", corev1.ServiceSpec{})
	for _, name := range []string{"name", "hand", "kubernetes"} {
		ingress(name)
		env.awaitWarning(t, "Ingress", name, "service["+name+"]", "use a service that selects pods")
		if err := gone(theirs.Get(t.Context(), env.hostName(name), metav1.GetOptions{})); err != nil {
			t.Error(err)
		}
	}

	ways := map[string]func(*corev1.Service){
		"becomes-name": func(v *corev1.Service) {
			v.Spec.Type, v.Spec.ExternalName, v.Spec.ClusterIP, v.Spec.ClusterIPs = elsewhere.Type, elsewhere.ExternalName, "", nil
		},
		"becomes-hand": func(v *corev1.Service) { v.Spec.Selector = nil },
	}
	change := func(name string, to func(*corev1.Service)) {
		t.Helper()
		testhost.Eventually(t, "change "+name, func(ctx context.Context) error {
			v, err := services.Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			to(v)
			_, err = services.Update(ctx, v, metav1.UpdateOptions{})
			return err
		})
	}
	for name, way := range ways {
		ingress(name) // before there is a service, as on any cluster
		service(name, corev1.ServiceSpec{Selector: map[string]string{"app": "web"}})
		awaited(t, "see it on the host", theirs.Get, env.hostName(name), nil)
		change(name, way)
		awaitedGone(t, "see it gone from the host", theirs.Get, env.hostName(name))
		env.awaitWarning(t, "Ingress", name, "service["+name+"]")
		change(name, func(v *corev1.Service) {
			v.Spec.Type, v.Spec.ExternalName, v.Spec.Selector = corev1.ServiceTypeClusterIP, "", map[string]string{"app": "web"}
		})
		awaited(t, "see it on the host again", theirs.Get, env.hostName(name), nil)
	}

	// Endpoints go down last: there is no moment at which the exposure leads to them.
	change("becomes-hand", ways["becomes-hand"])
	must(t, env.virtual.DiscoveryV1().EndpointSlices("default").Create, &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: "hand", Labels: map[string]string{discoveryv1.LabelServiceName: "becomes-hand"}},
		AddressType: discoveryv1.AddressTypeIPv4, Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"203.0.113.7"}}},
	})
	awaited(t, "see the endpoints on the host", env.host.DiscoveryV1().EndpointSlices(env.space.HostNamespace()).Get, env.hostName("hand"), nil)
	if err := gone(theirs.Get(t.Context(), env.hostName("becomes-hand"), metav1.GetOptions{})); err != nil {
		t.Error(err)
	}
}

// M4: a host name is its first claimant's, be it a space or the platform.
func TestAHostNameIsItsFirstClaimants(t *testing.T) {
	t.Parallel()
	first, second := synced(t, "claim-a"), synced(t, "claim-b")
	first.ingressClass(t, "claim-public", importLabel())
	platform := newIngress("platform", "claim-public", "*.platform.claim.example")
	platform.Namespace = "default"
	must(t, first.host.NetworkingV1().Ingresses("default").Create, platform)
	t.Cleanup(func() {
		_ = first.host.NetworkingV1().Ingresses("default").Delete(context.Background(), "platform", metav1.DeleteOptions{})
	})
	for _, env := range []*testEnv{first, second} {
		awaited(t, "see the class", env.virtual.NetworkingV1().IngressClasses().Get, "claim-public", nil)
	}
	must(t, first.virtual.NetworkingV1().Ingresses("default").Create, newIngress("shop", "claim-public", "shop.claim.example"))
	awaited(t, "see the first on the host", first.host.NetworkingV1().Ingresses(first.space.HostNamespace()).Get, first.hostName("shop"), nil)

	ours, theirs := second.virtual.NetworkingV1().Ingresses("default"), second.host.NetworkingV1().Ingresses(second.space.HostNamespace())
	must(t, ours.Create, newIngress("thief", "claim-public", "shop.claim.example"))
	must(t, ours.Create, newIngress("below", "claim-public", "a.platform.claim.example"))
	second.awaitWarning(t, "Ingress", "thief", "shop.claim.example", "in use")
	second.awaitWarning(t, "Ingress", "below", "a.platform.claim.example", "in use")
	if all, err := theirs.List(t.Context(), metav1.ListOptions{}); err != nil || len(all.Items) > 0 {
		t.Errorf("on the host are %v, %v", all.Items, err)
	}

	if err := first.virtual.NetworkingV1().Ingresses("default").Delete(t.Context(), "shop", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	awaited(t, "have the name once it is free", theirs.Get, second.hostName("thief"), nil)
}
