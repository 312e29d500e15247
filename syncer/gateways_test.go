// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package syncer_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/berth-dev/berth/internal/testhost"
	"github.com/berth-dev/berth/isolation"
	"github.com/berth-dev/berth/syncer/resources"
	"github.com/berth-dev/berth/translate"
)

// gatewayEnv is a space on a host that has upstream's definitions of gateways, a
// class for spaces and one that is not.
func gatewayEnv(t *testing.T, name string) (env *testEnv, host, space client.Client) {
	t.Helper()
	host = extended(t, theHost(t).Config())
	defineGateways(t, host)
	for class, labels := range map[string]map[string]string{name + "-imported": importLabel(), name + "-hidden": nil} {
		c := newGatewayClass()
		c.Name, c.Labels = class, labels
		testhost.Eventually(t, "make a class", func(ctx context.Context) error { return host.Create(ctx, c) }) // discovery lags
		t.Cleanup(func() { _ = host.Delete(context.Background(), c) })
	}
	env = synced(t, name, "gateways=on", "httproutes=on", "gatewayclasses="+resources.ImportSelector)
	if err := isolation.Apply(t.Context(), host, env.space, nil, isolation.Syncing(env.options.Sync)); err != nil {
		t.Fatal(err)
	}
	space = extended(t, env.toPlane())
	testhost.Eventually(t, "see the class", func(ctx context.Context) error {
		return space.Get(ctx, client.ObjectKey{Name: name + "-imported"}, &gatewayv1.GatewayClass{})
	})
	for _, all := range []client.ObjectList{&gatewayv1.GatewayList{}, &gatewayv1.HTTPRouteList{}} {
		testhost.Eventually(t, "see the space serve the kinds", func(ctx context.Context) error { return space.List(ctx, all) })
	}
	return env, host, space
}

func newGatewayClass() *gatewayv1.GatewayClass {
	return &gatewayv1.GatewayClass{Spec: gatewayv1.GatewayClassSpec{
		ControllerName: "host.example/controller", Description: ptr.To("in rack 7"),
		ParametersRef: &gatewayv1.ParametersReference{Group: "host.example", Kind: "Config", Name: "of-the-host"},
	}}
}

// defineGateways installs upstream's definitions of gateways, as they are in
// releases after the one that Berth's types are of.
func defineGateways(t *testing.T, host client.Client) {
	t.Helper()
	newer := map[string]apiextensionsv1.JSONSchemaProps{"tls": {Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{"mode": {Type: "string"}}}}
	defineFrom(t, host, "sigs.k8s.io/gateway-api", "config/crd/standard/gateway.networking.k8s.io_", newer, "gateways", "httproutes", "gatewayclasses")
}

func newGateway(name, class, host string) *gatewayv1.Gateway {
	return &gatewayv1.Gateway{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Annotations: map[string]string{"host.example/command": "evil"}},
		Spec: gatewayv1.GatewaySpec{GatewayClassName: gatewayv1.ObjectName(class), Listeners: []gatewayv1.Listener{{
			Name: "https", Hostname: ptr.To(gatewayv1.Hostname(host)), Port: 443, Protocol: gatewayv1.HTTPSProtocolType,
			TLS: &gatewayv1.GatewayTLSConfig{CertificateRefs: []gatewayv1.SecretObjectReference{{Name: gatewayv1.ObjectName(name + "-cert")}}},
		}}},
	}
}

func newRoute(name, gateway, host, service string) *gatewayv1.HTTPRoute {
	return &gatewayv1.HTTPRoute{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec: gatewayv1.HTTPRouteSpec{
			CommonRouteSpec: gatewayv1.CommonRouteSpec{ParentRefs: []gatewayv1.ParentReference{{Name: gatewayv1.ObjectName(gateway)}}},
			Hostnames:       []gatewayv1.Hostname{gatewayv1.Hostname(host)},
			Rules: []gatewayv1.HTTPRouteRule{{BackendRefs: []gatewayv1.HTTPBackendRef{{BackendRef: gatewayv1.BackendRef{
				BackendObjectReference: gatewayv1.BackendObjectReference{Name: gatewayv1.ObjectName(service), Port: ptr.To(gatewayv1.PortNumber(80))},
			}}}}},
		},
	}
}

// Served creates an object as soon as its kind is served.
func Served(t *testing.T, c client.Client, o client.Object) {
	t.Helper()
	testhost.Eventually(t, "make "+o.GetName(), func(ctx context.Context) error { return c.Create(ctx, o) })
}

func (env *testEnv) idle(t *testing.T) {
	t.Helper()
	testhost.Eventually(t, "have nothing to do", func(context.Context) error {
		if !env.run.syncer.Idle() {
			return errors.New("the syncer is busy")
		}
		return nil
	})
}

// S1, S2, S7, M4, N1: a gateway of an imported class, its certificate and its
// route go down; what became of them comes back, without words of the host's; a
// sleep takes nothing from the host; what is deleted goes.
func TestGatewaysAndTheirRoutesAreServedByTheHost(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	env, host, space := gatewayEnv(t, "gw")
	class := &gatewayv1.GatewayClass{}
	if err := space.Get(ctx, client.ObjectKey{Name: "gw-imported"}, class); err != nil {
		t.Fatal(err)
	}
	if class.Spec.ControllerName != translate.GatewayController || class.Spec.ParametersRef != nil || class.Spec.Description != nil {
		t.Errorf("the class tells of the host's: %v", class.Spec)
	}
	cert := must(t, env.virtual.CoreV1().Secrets("default").Create, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "shop-cert"}, Type: corev1.SecretTypeTLS, Data: map[string][]byte{"tls.crt": []byte("c"), "tls.key": []byte("k")},
	})
	must(t, env.virtual.CoreV1().Services("default").Create, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: corev1.ServiceSpec{Selector: map[string]string{"app": "web"}, Ports: []corev1.ServicePort{{Port: 80}}},
	})
	v, r := newGateway("shop", "gw-imported", "shop.gw.example"), newRoute("shop", "shop", "shop.gw.example", "web")
	for _, o := range []client.Object{v, r} {
		Served(t, space, o)
	}
	label := env.space.HostName("default", "shop", translate.LimitLabel)
	h, hr := &gatewayv1.Gateway{}, &gatewayv1.HTTPRoute{}
	testhost.Eventually(t, "see both on the host", func(ctx context.Context) error {
		return errors.Join(host.Get(ctx, client.ObjectKey{Namespace: env.space.HostNamespace(), Name: label}, h),
			host.Get(ctx, client.ObjectKey{Namespace: env.space.HostNamespace(), Name: env.hostName("shop")}, hr))
	})
	awaited(t, "see the certificate on the host", env.host.CoreV1().Secrets(env.space.HostNamespace()).Get, env.hostName(cert.Name), nil)
	if got := string(h.Spec.Listeners[0].TLS.CertificateRefs[0].Name); got != env.hostName("shop-cert") || h.Annotations["host.example/command"] != "" {
		t.Errorf("the gateway names %q, annotations %v", got, h.Annotations)
	}
	if parent, backend := hr.Spec.ParentRefs[0], hr.Spec.Rules[0].BackendRefs[0]; string(parent.Name) != label || parent.Namespace != nil ||
		string(backend.Name) != env.space.HostName("default", "web", translate.LimitLabel) || backend.Namespace != nil {
		t.Errorf("the route leads from %v to %v", parent, backend)
	}

	// The embedded host has no controller of gateways: what one would report.
	condition := func(generation int64) []metav1.Condition {
		return []metav1.Condition{{
			Type: "Accepted", Status: metav1.ConditionTrue, Reason: "Accepted", ObservedGeneration: generation,
			Message: "programmed on node-of-the-host 10.1.2.3", LastTransitionTime: metav1.Now(),
		}, {Type: "host.example/Place", Status: metav1.ConditionTrue, Reason: "InRackOfTheHost", LastTransitionTime: metav1.Now()}}
	}
	h.Status = gatewayv1.GatewayStatus{
		Addresses:  []gatewayv1.GatewayStatusAddress{{Type: ptr.To(gatewayv1.IPAddressType), Value: "203.0.113.9"}, {Type: ptr.To(gatewayv1.AddressType("host.example/node")), Value: "node-of-the-host"}},
		Conditions: condition(h.Generation),
		Listeners:  []gatewayv1.ListenerStatus{{Name: "https", SupportedKinds: []gatewayv1.RouteGroupKind{{Kind: "HTTPRoute"}}, AttachedRoutes: 1, Conditions: condition(h.Generation)}},
	}
	hr.Status.Parents = []gatewayv1.RouteParentStatus{{ParentRef: hr.Spec.ParentRefs[0], ControllerName: "host.example/controller", Conditions: condition(hr.Generation)}}
	if err := errors.Join(host.Status().Update(ctx, h), host.Status().Update(ctx, hr)); err != nil {
		t.Fatal(err)
	}
	testhost.Eventually(t, "hear of both", func(ctx context.Context) error {
		if err := errors.Join(space.Get(ctx, client.ObjectKeyFromObject(v), v), space.Get(ctx, client.ObjectKeyFromObject(r), r)); err != nil {
			return err
		}
		if len(v.Status.Addresses) != 1 || v.Status.Addresses[0].Value != "203.0.113.9" || len(v.Status.Listeners) != 1 || v.Status.Listeners[0].AttachedRoutes != 1 {
			return fmt.Errorf("the gateway's status is %v", v.Status)
		}
		if len(r.Status.Parents) != 1 || r.Status.Parents[0].ParentRef.Name != "shop" || r.Status.Parents[0].ControllerName != translate.GatewayController {
			return fmt.Errorf("the route's status is %v", r.Status)
		}
		return nil
	})
	if c := v.Status.Conditions; len(c) != 1 || c[0].ObservedGeneration != v.Generation || c[0].Status != metav1.ConditionTrue {
		t.Errorf("the gateway's conditions are %v", c)
	}
	if said := fmt.Sprint(v.Status, r.Status); strings.Contains(said, "OfTheHost") || strings.Contains(said, "of-the-host") || strings.Contains(said, "10.1.2.3") {
		t.Errorf("the space is told %s", said)
	}

	env.idle(t)
	if err := env.kill(); err != nil {
		t.Fatal(err)
	}
	env.begin(nil)
	env.idle(t)
	for _, before := range []client.Object{h, hr} {
		now := before.DeepCopyObject().(client.Object)
		if err := host.Get(ctx, client.ObjectKeyFromObject(before), now); err != nil || now.GetUID() != before.GetUID() || now.GetGeneration() != before.GetGeneration() {
			t.Errorf("a sleep changed %s on the host: %v", before.GetName(), err)
		}
	}
	if _, err := env.host.CoreV1().Secrets(env.space.HostNamespace()).Get(ctx, env.hostName(cert.Name), metav1.GetOptions{}); err != nil {
		t.Error(err)
	}

	// What leads out of the space takes the route away.
	testhost.Eventually(t, "change the service", func(ctx context.Context) error {
		web, err := env.virtual.CoreV1().Services("default").Get(ctx, "web", metav1.GetOptions{})
		if err != nil {
			return err
		}
		web.Spec.Type, web.Spec.ExternalName, web.Spec.ClusterIP, web.Spec.ClusterIPs = corev1.ServiceTypeExternalName, "metrics-server.kube-system.svc", "", nil
		_, err = env.virtual.CoreV1().Services("default").Update(ctx, web, metav1.UpdateOptions{})
		return err
	})
	testhost.Eventually(t, "see the route gone", func(ctx context.Context) error { return gone(hr, host.Get(ctx, client.ObjectKeyFromObject(hr), hr)) })
	env.awaitWarning(t, "HTTPRoute", "shop", "backendRefs[web]", "use a service that selects pods")

	if err := space.Delete(ctx, v); err != nil {
		t.Fatal(err)
	}
	testhost.Eventually(t, "see the gateway gone", func(ctx context.Context) error { return gone(h, host.Get(ctx, client.ObjectKeyFromObject(h), h)) })
	awaitedGone(t, "see its certificate gone", env.host.CoreV1().Secrets(env.space.HostNamespace()).Get, env.hostName(cert.Name))
}

// M4: what a tenant writes into gateways and routes to get at the host, or at
// others, is refused by name, and does not go there.
func TestNoGatewayReachesBeyondItsSpace(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	env, host, space := gatewayEnv(t, "gwbad")
	must(t, env.host.NetworkingV1().Ingresses("default").Create, &networkingv1.Ingress{
		ObjectMeta: metav1.ObjectMeta{Name: "gwbad"}, Spec: networkingv1.IngressSpec{Rules: []networkingv1.IngressRule{{Host: "taken.gwbad.example"}}},
	})
	t.Cleanup(func() {
		_ = env.host.NetworkingV1().Ingresses("default").Delete(context.Background(), "gwbad", metav1.DeleteOptions{})
	})
	platform := newRoute("gwbad", "edge", "api.gwbad.example", "api")
	Served(t, host, platform)
	t.Cleanup(func() { _ = host.Delete(context.Background(), platform) })
	must(t, env.virtual.CoreV1().Namespaces().Create, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "other"}})

	gateways := map[string]struct {
		change func(*gatewayv1.Gateway)
		says   string
	}{
		"class":     {func(g *gatewayv1.Gateway) { g.Spec.GatewayClassName = "gwbad-hidden" }, "spec.gatewayClassName"},
		"addresses": {func(g *gatewayv1.Gateway) { g.Spec.Addresses = []gatewayv1.GatewaySpecAddress{{Value: "10.0.0.1"}} }, "spec.addresses"},
		"infrastructure": {func(g *gatewayv1.Gateway) {
			g.Spec.Infrastructure = &gatewayv1.GatewayInfrastructure{Annotations: map[gatewayv1.AnnotationKey]gatewayv1.AnnotationValue{"lb.example/internal": "false"}}
		}, "spec.infrastructure"},
		"parameters": {func(g *gatewayv1.Gateway) {
			g.Spec.Infrastructure = &gatewayv1.GatewayInfrastructure{ParametersRef: &gatewayv1.LocalParametersReference{Group: "host.example", Kind: "Config", Name: "x"}}
		}, "spec.infrastructure"},
		"port": {func(g *gatewayv1.Gateway) { g.Spec.Listeners[0].Port = 10250 }, "spec.listeners[0].port"},
		"tcp": {func(g *gatewayv1.Gateway) {
			g.Spec.Listeners[0] = gatewayv1.Listener{Name: "t", Port: 22, Protocol: gatewayv1.TCPProtocolType}
		}, "spec.listeners[0].port"},
		"no-name":  {func(g *gatewayv1.Gateway) { g.Spec.Listeners[0].Hostname = nil }, "spec.listeners[0].hostname"},
		"wildcard": {func(g *gatewayv1.Gateway) { g.Spec.Listeners[0].Hostname = ptr.To(gatewayv1.Hostname("*.example")) }, "spec.listeners[0].hostname"},
		"taken": {func(g *gatewayv1.Gateway) {
			g.Spec.Listeners[0].Hostname = ptr.To(gatewayv1.Hostname("taken.gwbad.example"))
		}, "in use outside"},
		"others": {func(g *gatewayv1.Gateway) {
			g.Spec.Listeners[0].AllowedRoutes = &gatewayv1.AllowedRoutes{Namespaces: &gatewayv1.RouteNamespaces{From: ptr.To(gatewayv1.NamespacesFromAll)}}
		}, "allowedRoutes.namespaces.from"},
		"selected": {func(g *gatewayv1.Gateway) {
			g.Spec.Listeners[0].AllowedRoutes = &gatewayv1.AllowedRoutes{Namespaces: &gatewayv1.RouteNamespaces{From: ptr.To(gatewayv1.NamespacesFromSelector), Selector: &metav1.LabelSelector{}}}
		}, "allowedRoutes.namespaces.from"},
		"options": {func(g *gatewayv1.Gateway) {
			g.Spec.Listeners[0].TLS.Options = map[gatewayv1.AnnotationKey]gatewayv1.AnnotationValue{"host.example/option": "x"}
		}, "tls.options"},
		"secret": {func(g *gatewayv1.Gateway) {
			g.Spec.Listeners[0].TLS.CertificateRefs[0].Namespace = ptr.To(gatewayv1.Namespace("other"))
		}, "certificateRefs[0]"},
	}
	for name, attack := range gateways {
		v := newGateway(name, "gwbad-imported", name+".gwbad.example")
		attack.change(v)
		Served(t, space, v)
		env.awaitWarning(t, "Gateway", name, attack.says)
		at := client.ObjectKey{Namespace: env.space.HostNamespace(), Name: env.space.HostName("default", name, translate.LimitLabel)}
		if err := host.Get(ctx, at, &gatewayv1.Gateway{}); !apierrors.IsNotFound(err) {
			t.Errorf("%s is on the host (%v)", name, err)
		}
	}

	elsewhere := newGateway("elsewhere", "gwbad-imported", "elsewhere.gwbad.example")
	elsewhere.Namespace = "other"
	for _, v := range []*gatewayv1.Gateway{newGateway("good", "gwbad-imported", "good.gwbad.example"), elsewhere} {
		Served(t, space, v)
	}
	mirror := func(ref gatewayv1.BackendObjectReference) []gatewayv1.HTTPRouteFilter {
		return []gatewayv1.HTTPRouteFilter{{Type: gatewayv1.HTTPRouteFilterRequestMirror, RequestMirror: &gatewayv1.HTTPRequestMirrorFilter{BackendRef: ref}}}
	}
	routes := map[string]struct {
		change func(*gatewayv1.HTTPRoute)
		says   string
	}{
		"parent": {func(r *gatewayv1.HTTPRoute) {
			r.Spec.ParentRefs[0] = gatewayv1.ParentReference{Name: "elsewhere", Namespace: ptr.To(gatewayv1.Namespace("other"))}
		}, "spec.parentRefs[0].namespace"},
		"backend": {func(r *gatewayv1.HTTPRoute) {
			r.Spec.Rules[0].BackendRefs[0].Namespace = ptr.To(gatewayv1.Namespace("kube-system"))
		}, "backendRefs[0]"},
		"kind": {func(r *gatewayv1.HTTPRoute) {
			ref := &r.Spec.Rules[0].BackendRefs[0]
			ref.Group, ref.Kind = ptr.To(gatewayv1.Group("host.example")), ptr.To(gatewayv1.Kind("Backend"))
		}, "backendRefs[0]"},
		"mirror": {func(r *gatewayv1.HTTPRoute) {
			r.Spec.Rules[0].Filters = mirror(gatewayv1.BackendObjectReference{Name: "x", Namespace: ptr.To(gatewayv1.Namespace("other")), Port: ptr.To(gatewayv1.PortNumber(80))})
		}, "requestMirror.backendRef"},
		"way-out": {func(r *gatewayv1.HTTPRoute) {
			r.Spec.Rules[0].Filters = mirror(gatewayv1.BackendObjectReference{Name: "kubernetes", Port: ptr.To(gatewayv1.PortNumber(443))})
		}, "backendRefs[kubernetes]"},
		"extension": {func(r *gatewayv1.HTTPRoute) {
			r.Spec.Rules[0].Filters = []gatewayv1.HTTPRouteFilter{{Type: gatewayv1.HTTPRouteFilterExtensionRef, ExtensionRef: &gatewayv1.LocalObjectReference{Group: "host.example", Kind: "Lua", Name: "x"}}}
		}, "filters[0].type"},
		"command": {func(r *gatewayv1.HTTPRoute) {
			r.Spec.Rules[0].Filters = []gatewayv1.HTTPRouteFilter{{Type: gatewayv1.HTTPRouteFilterRequestHeaderModifier, RequestHeaderModifier: &gatewayv1.HTTPHeaderFilter{
				Set: []gatewayv1.HTTPHeader{{Name: "X-Secret", Value: "%ENVIRONMENT(TOKEN)%"}},
			}}}
		}, "requestHeaderModifier[X-Secret]"},
		"expression": {func(r *gatewayv1.HTTPRoute) {
			r.Spec.Rules[0].Matches = []gatewayv1.HTTPRouteMatch{{Path: &gatewayv1.HTTPPathMatch{Type: ptr.To(gatewayv1.PathMatchRegularExpression), Value: ptr.To("/(a+)+")}}}
		}, "path.type"},
		"wildcard": {func(r *gatewayv1.HTTPRoute) { r.Spec.Hostnames = []gatewayv1.Hostname{"*.example"} }, "spec.hostnames[0]"},
		"taken":    {func(r *gatewayv1.HTTPRoute) { r.Spec.Hostnames = []gatewayv1.Hostname{"api.gwbad.example"} }, "in use outside"},
	}
	for name, attack := range routes {
		r := newRoute(name, "good", name+".gwbad.example", "web")
		attack.change(r)
		Served(t, space, r)
		env.awaitWarning(t, "HTTPRoute", name, attack.says)
		if err := host.Get(ctx, client.ObjectKey{Namespace: env.space.HostNamespace(), Name: env.hostName(name)}, &gatewayv1.HTTPRoute{}); !apierrors.IsNotFound(err) {
			t.Errorf("%s is on the host (%v)", name, err)
		}
	}

	// Whoever holds the space's account is held to the same by the host itself.
	posing := rest.CopyConfig(env.cluster.Config())
	posing.Impersonate = rest.ImpersonationConfig{UserName: "system:serviceaccount:" + env.space.HostNamespace() + ":berth-syncer"}
	account := extended(t, posing)
	at := metav1.ObjectMeta{Namespace: env.space.HostNamespace(), Name: "gwbad--default--posing", Labels: map[string]string{translate.LabelSpace: env.space.Name}}
	g := newGateway("posing", "gwbad-imported", "posing.gwbad.example")
	g.ObjectMeta, g.Spec.Listeners[0].Hostname = at, nil
	if err := refusedBy("berth-space-accounts", account.Create(ctx, g)); err != nil {
		t.Errorf("the space's account makes a gateway for every name: %v", err)
	}
	r := newRoute("posing", "x", "posing.gwbad.example", "x")
	r.ObjectMeta, r.Spec.ParentRefs[0].Namespace = at, ptr.To(gatewayv1.Namespace("default"))
	if err := refusedBy("berth-space-accounts", account.Create(ctx, r)); err != nil {
		t.Errorf("the space's account attaches a route to a gateway of the host's: %v", err)
	}
}

// S1: where they are disabled, nothing of gateways is in the space or on the host.
func TestGatewaysAreOffByDefault(t *testing.T) {
	t.Parallel()
	env := synced(t, "gwoff")
	env.idle(t)
	if err := extended(t, env.toPlane()).List(t.Context(), &gatewayv1.GatewayList{}); err == nil {
		t.Error("the space has gateways")
	}
}
