// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package translate_test

import (
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"

	"github.com/berth-dev/berth/translate"
	"github.com/berth-dev/berth/translate/sample"
)

func ingress(change ...func(*networkingv1.Ingress)) *networkingv1.Ingress {
	v := &networkingv1.Ingress{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "shop", UID: "i-uid"},
		Spec: networkingv1.IngressSpec{
			IngressClassName: ptr.To("nginx"),
			TLS:              []networkingv1.IngressTLS{{Hosts: []string{"shop.example.com"}, SecretName: "cert"}},
			Rules: []networkingv1.IngressRule{{Host: "shop.example.com", IngressRuleValue: networkingv1.IngressRuleValue{HTTP: &networkingv1.HTTPIngressRuleValue{
				Paths: []networkingv1.HTTPIngressPath{{Path: "/a", PathType: ptr.To(networkingv1.PathTypePrefix), Backend: networkingv1.IngressBackend{
					Service: &networkingv1.IngressServiceBackend{Name: "web", Port: networkingv1.ServiceBackendPort{Name: "http"}},
				}}},
			}}}},
		},
	}
	for _, f := range change {
		f(v)
	}
	return v
}

// S1, S3: one ingress, whole, as the host gets it.
func TestAnIngressNamesTheSpacesServicesAndSecrets(t *testing.T) {
	v := ingress(func(v *networkingv1.Ingress) {
		v.Annotations = map[string]string{"nginx.ingress.kubernetes.io/server-snippet": "evil", "example.com/allowed": "yes", "berth.dev/uid": "x"}
	})
	want := &networkingv1.Ingress{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "berth-demo", Name: "demo--default--shop",
			Labels: map[string]string{"app.kubernetes.io/managed-by": "berth", "berth.dev/space": "demo", "berth.dev/namespace": "default"},
			Annotations: map[string]string{
				"berth.dev/namespace": "default", "berth.dev/name": "shop", "berth.dev/uid": "i-uid", "example.com/allowed": "yes",
			},
		},
		Spec: *v.Spec.DeepCopy(),
	}
	want.Spec.TLS[0].SecretName = "demo--default--cert"
	want.Spec.Rules[0].HTTP.Paths[0].Backend.Service.Name = "demo--default--web"
	before := v.DeepCopy()
	host := sample.Demo().Ingress(v, []string{"example.com/allowed", "berth.dev/uid"})
	if diff := cmp.Diff(want, host); diff != "" {
		t.Errorf("host ingress: -want +got:\n%s", diff)
	}
	if diff := cmp.Diff(before, v); diff != "" {
		t.Errorf("the argument changed: -before +after:\n%s", diff)
	}
	sample.CheckNoSharedMemory(t, v, host)
	if errs := translate.CheckIngress(&v.Spec); len(errs) > 0 {
		t.Errorf("it is refused: %v", errs)
	}
}

// M4: what a tenant may write to get at what is others' behind the shared controller.
func TestAnIngressMayNotTakeWhatIsOthers(t *testing.T) {
	rule := func(f func(*networkingv1.IngressRule)) func(*networkingv1.Ingress) {
		return func(v *networkingv1.Ingress) { f(&v.Spec.Rules[0]) }
	}
	path := func(p string) func(*networkingv1.Ingress) {
		return rule(func(r *networkingv1.IngressRule) { r.HTTP.Paths[0].Path = p })
	}
	cases := map[string]struct {
		reason string
		change func(*networkingv1.Ingress)
		field  string
	}{
		"default backend": {"it takes what is for nobody else", func(v *networkingv1.Ingress) { v.Spec.DefaultBackend = &networkingv1.IngressBackend{} }, "spec.defaultBackend"},
		"every host":      {"it takes all", rule(func(r *networkingv1.IngressRule) { r.Host = "" }), "spec.rules[0].host"},
		"wildcard":        {"it takes others' names", rule(func(r *networkingv1.IngressRule) { r.Host = "*.com" }), "spec.rules[0].host"},
		"TLS for all":     {"a certificate for others' names", func(v *networkingv1.Ingress) { v.Spec.TLS[0].Hosts = nil }, "spec.tls[0].hosts"},
		"TLS wildcard":    {"a certificate for others' names", func(v *networkingv1.Ingress) { v.Spec.TLS[0].Hosts[0] = "*.example.com" }, "spec.tls[0].hosts[0]"},
		"resource backend": {"it names an object of the host's namespace", rule(func(r *networkingv1.IngressRule) {
			r.HTTP.Paths[0].Backend = networkingv1.IngressBackend{Resource: &corev1.TypedLocalObjectReference{Kind: "Secret", Name: "x"}}
		}), "spec.rules[0].http.paths[0].backend.resource"},
		"configuration": {"CVE-2021-25745", path("/x { lua_code 'x'; }"), "spec.rules[0].http.paths[0].path"},
		"a new line":    {"CVE-2021-25748", path("/x\n}"), "spec.rules[0].http.paths[0].path"},
		"variables":     {"they tell of the controller", path("/$pid"), "spec.rules[0].http.paths[0].path"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			errs := translate.CheckIngress(&ingress(tc.change).Spec)
			if len(errs) != 1 || errs[0].Field != tc.field {
				t.Errorf("%s: got %v, want one error for %s", tc.reason, errs, tc.field)
			}
		})
	}
}

// Whatever slipped by the checks, a host ingress claims no name by which others
// are reached, and refers to nothing but the space's.
func TestNoIngressReachesPastItsSpace(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := &networkingv1.Ingress{}
		sample.Fill(t, reflect.ValueOf(v).Elem(), 10)
		v.Namespace, v.Name = "default", "x"
		for range rapid.IntRange(0, 2).Draw(t, "rules") {
			r := networkingv1.IngressRule{}
			sample.Fill(t, reflect.ValueOf(&r).Elem(), 8)
			r.Host = sample.Of(t, "host", "", "*", "*.example.com", "a.example.com")
			v.Spec.Rules = append(v.Spec.Rules, r)
			v.Spec.TLS = append(v.Spec.TLS, networkingv1.IngressTLS{Hosts: []string{sample.Of(t, "host", "", "*.com", "a.example.com")}, SecretName: sample.Of(t, "secret", "", "x", "other--default--web")})
		}
		host := sample.Demo().Ingress(v, nil)
		for key := range host.Annotations {
			if !translate.Owned(key) {
				t.Fatalf("annotation %s went along", key)
			}
		}
		for _, name := range translate.IngressHosts(host) {
			if strings.Contains(name, "*") || name == "" {
				t.Fatalf("claims %q", name)
			}
		}
		if host.Spec.DefaultBackend != nil {
			t.Fatal("a default backend went along")
		}
		for at, backend := range sample.FindAll[networkingv1.IngressBackend](host) {
			if backend.Resource != nil || backend.Service == nil || !strings.HasPrefix(backend.Service.Name, "demo-") {
				t.Fatalf("%s leads to %v", at, backend)
			}
		}
		for at, tls := range sample.FindAll[networkingv1.IngressTLS](host) {
			if len(tls.Hosts) == 0 || tls.SecretName != "" && !strings.HasPrefix(tls.SecretName, "demo-") {
				t.Fatalf("%s is %v", at, tls)
			}
		}
		sample.CheckNoSharedMemory(t, v, host)
	})
}

// An annotation that the tenant takes away goes from the host; the host's own stay.
func TestAnIngressLosesAnAnnotationThatWasAllowed(t *testing.T) {
	allowed := []string{"example.com/allowed"}
	have := sample.Demo().Ingress(ingress(func(v *networkingv1.Ingress) { v.Annotations = map[string]string{"example.com/allowed": "yes"} }), allowed)
	have.Annotations["controller.example.com/state"] = "kept"
	want := sample.Demo().Ingress(ingress(), allowed)
	if !translate.PushIngress(want, have, allowed) || have.Annotations["example.com/allowed"] != "" || have.Annotations["controller.example.com/state"] != "kept" {
		t.Errorf("annotations are %v", have.Annotations)
	}
	if translate.PushIngress(want, have, allowed) {
		t.Error("a second push changes something")
	}
}
