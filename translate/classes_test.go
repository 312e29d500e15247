// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package translate_test

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	nodev1 "k8s.io/api/node/v1"
	policyv1 "k8s.io/api/policy/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"pgregory.net/rapid"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/translate"
	"github.com/berth-dev/berth/translate/sample"
)

// checkClass draws a class of the host's and one of that name in the space, and
// pulls until the space's needs no change: what it says then is what up says.
func checkClass[T client.Object](t *rapid.T, fresh func() T, up func(T) T, pull func(want, have T) (changed, recreate bool)) {
	host, have := fresh(), fresh()
	sample.Fill(t, reflect.ValueOf(host).Elem(), 6)
	sample.Fill(t, reflect.ValueOf(have).Elem(), 6)
	host.SetAnnotations(map[string]string{"secret": "of-the-host", "ingressclass.kubernetes.io/is-default-class": sample.Of(t, "default", "", "true")})
	host.SetLabels(map[string]string{"secret": "of-the-host"})
	want := up(host)
	sample.CheckSilent(t, want, "of-the-host")
	sample.CheckNoSharedMemory(t, host, want)
	_, recreate := pull(want, have)
	if recreate {
		have = want.DeepCopyObject().(T)
	}
	if changed, recreate := pull(want, have); changed || recreate {
		t.Fatalf("a second pull changes something: %v", have)
	}
	if have.GetLabels()[translate.LabelManagedBy] != translate.ManagedBy {
		t.Fatal("the class does not show whose it is")
	}
	same := have.DeepCopyObject().(T)
	for _, o := range []T{same, want} {
		for _, f := range []string{"ObjectMeta", "TypeMeta"} {
			reflect.ValueOf(o).Elem().FieldByName(f).SetZero()
		}
	}
	if diff := cmp.Diff(want, same); diff != "" {
		t.Fatalf("the space's class: -want +got:\n%s", diff)
	}
}

// S2: the space's classes become the host's, whatever the tenant made of them.
func TestClassesAreTheHosts(t *testing.T) {
	for name, check := range map[string]func(*rapid.T){
		"ingress": func(t *rapid.T) {
			checkClass(t, func() *networkingv1.IngressClass { return &networkingv1.IngressClass{} }, translate.IngressClass, translate.PullIngressClass)
		},
		"runtime": func(t *rapid.T) {
			checkClass(t, func() *nodev1.RuntimeClass { return &nodev1.RuntimeClass{} }, translate.RuntimeClass, translate.PullRuntimeClass)
		},
		"priority": func(t *rapid.T) {
			checkClass(t, func() *schedulingv1.PriorityClass { return &schedulingv1.PriorityClass{} }, translate.PriorityClass, translate.PullPriorityClass)
		},
	} {
		t.Run(name, func(t *testing.T) { rapid.Check(t, check) })
	}
}

// Fields that Kubernetes adds to a kind need a decision: all of these are built
// field by field, so that a new one stays where it is until somebody decides.
func TestEveryFieldOfASyncedKindIsDecidedAbout(t *testing.T) {
	for of, fields := range map[reflect.Type]string{
		reflect.TypeFor[networkingv1.IngressSpec]():              "DefaultBackend IngressClassName Rules TLS",
		reflect.TypeFor[networkingv1.IngressRule]():              "Host IngressRuleValue",
		reflect.TypeFor[networkingv1.IngressRuleValue]():         "HTTP",
		reflect.TypeFor[networkingv1.HTTPIngressRuleValue]():     "Paths",
		reflect.TypeFor[networkingv1.HTTPIngressPath]():          "Backend Path PathType",
		reflect.TypeFor[networkingv1.IngressBackend]():           "Resource Service",
		reflect.TypeFor[networkingv1.IngressServiceBackend]():    "Name Port",
		reflect.TypeFor[networkingv1.IngressTLS]():               "Hosts SecretName",
		reflect.TypeFor[networkingv1.IngressStatus]():            "LoadBalancer",
		reflect.TypeFor[networkingv1.IngressClassSpec]():         "Controller Parameters",
		reflect.TypeFor[networkingv1.NetworkPolicySpec]():        "Egress Ingress PodSelector PolicyTypes",
		reflect.TypeFor[networkingv1.NetworkPolicyIngressRule](): "From Ports",
		reflect.TypeFor[networkingv1.NetworkPolicyEgressRule]():  "Ports To",
		reflect.TypeFor[networkingv1.NetworkPolicyPeer]():        "IPBlock NamespaceSelector PodSelector",
		reflect.TypeFor[networkingv1.NetworkPolicyPort]():        "EndPort Port Protocol",
		reflect.TypeFor[networkingv1.IPBlock]():                  "CIDR Except",
		reflect.TypeFor[policyv1.PodDisruptionBudgetSpec]():      "MaxUnavailable MinAvailable Selector UnhealthyPodEvictionPolicy",
		reflect.TypeFor[corev1.ServiceAccount]():                 "AutomountServiceAccountToken ImagePullSecrets ObjectMeta Secrets TypeMeta",
		reflect.TypeFor[nodev1.RuntimeClass]():                   "Handler ObjectMeta Overhead Scheduling TypeMeta",
		reflect.TypeFor[schedulingv1.PriorityClass]():            "Description GlobalDefault ObjectMeta PreemptionPolicy TypeMeta Value",
	} {
		t.Run(of.Name(), func(t *testing.T) {
			var have []string
			for i := range of.NumField() {
				have = append(have, of.Field(i).Name)
			}
			slices.Sort(have)
			if got := strings.Join(have, " "); got != fields {
				t.Errorf("%s has fields\n%s\ndecided about are\n%s", of, got, fields)
			}
		})
	}
}
