// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package translate_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/berth-dev/berth/translate"
	"github.com/berth-dev/berth/translate/pod"
	"github.com/berth-dev/berth/translate/sample"
)

func manyNamespaces(count int) []*corev1.Namespace {
	out := make([]*corev1.Namespace, 0, count)
	for i := range count {
		name := fmt.Sprintf("n%d", i)
		out = append(out, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelMetadataName: name}}})
	}
	return out
}

func anyNamespace(peers int) []networkingv1.NetworkPolicyPeer {
	out := make([]networkingv1.NetworkPolicyPeer, peers)
	for i := range out {
		out[i].NamespaceSelector = &metav1.LabelSelector{}
	}
	return out
}

func exceptions(count int) (out []string) {
	for i := range count {
		out = append(out, fmt.Sprintf("8.%d.%d.%d/32", i>>16&255, i>>8&255, i&255))
	}
	return out
}

func withTerms(pods, apart, spread int) *corev1.PodSpec {
	half := func(n int) (required []corev1.PodAffinityTerm, preferred []corev1.WeightedPodAffinityTerm) {
		term := corev1.PodAffinityTerm{TopologyKey: corev1.LabelHostname}
		return slices.Repeat([]corev1.PodAffinityTerm{term}, n/2), slices.Repeat([]corev1.WeightedPodAffinityTerm{{Weight: 1, PodAffinityTerm: term}}, n-n/2)
	}
	spec := &corev1.PodSpec{
		Affinity:                  &corev1.Affinity{PodAffinity: &corev1.PodAffinity{}, PodAntiAffinity: &corev1.PodAntiAffinity{}},
		TopologySpreadConstraints: slices.Repeat([]corev1.TopologySpreadConstraint{{TopologyKey: corev1.LabelHostname}}, spread),
	}
	to, from := spec.Affinity.PodAffinity, spec.Affinity.PodAntiAffinity
	to.RequiredDuringSchedulingIgnoredDuringExecution, to.PreferredDuringSchedulingIgnoredDuringExecution = half(pods)
	from.RequiredDuringSchedulingIgnoredDuringExecution, from.PreferredDuringSchedulingIgnoredDuringExecution = half(apart)
	return spec
}

func rules(count int) []networkingv1.IngressRule {
	out := make([]networkingv1.IngressRule, count)
	for i := range out {
		out[i].Host = fmt.Sprintf("h%d.example.com", i)
	}
	return out
}

// N1: Kubernetes bounds an object by its size alone: a hundred thousand peers,
// hosts or terms fit in one, and all spaces' process would work through them.
func TestWhatOneObjectMayListIsBounded(t *testing.T) {
	policy := func(ingress []networkingv1.NetworkPolicyIngressRule, egress []networkingv1.NetworkPolicyEgressRule) field.ErrorList {
		return translate.CheckNetworkPolicy(netPolicy(ingress, egress))
	}
	from := func(peers int) []networkingv1.NetworkPolicyIngressRule {
		return []networkingv1.NetworkPolicyIngressRule{{From: anyNamespace(peers)}}
	}
	pod := func(spec *corev1.PodSpec) field.ErrorList { return pod.Check(&metav1.ObjectMeta{}, spec) }
	paths := rules(1)
	paths[0].HTTP = &networkingv1.HTTPIngressRuleValue{Paths: make([]networkingv1.HTTPIngressPath, 1001)}
	for name, tc := range map[string]struct {
		reason string
		errs   field.ErrorList
		want   string
	}{
		"Peers":           {"as many as are possible", policy(from(1000), nil), ""},
		"TooManyPeers":    {"each becomes a list of namespaces", policy(from(100_000), nil), "spec.ingress: Invalid value: 100000: 100000 peers, at most 1000 are possible (limit policy-peers): spread them over several NetworkPolicies"},
		"Rules":           {"each is everyone", policy(nil, make([]networkingv1.NetworkPolicyEgressRule, 1001)), "spec.egress: Invalid value: 1001"},
		"Exceptions":      {"", egressErrs(block("8.0.0.0/8", exceptions(1000)...)), "spec.egress: Invalid value: 1001"},
		"Terms":           {"", pod(withTerms(50, 50, 100)), ""},
		"TooManyTerms":    {"each becomes a list of namespaces", pod(withTerms(50, 51, 0)), "spec.affinity: Invalid value: 101"},
		"SpreadTerms":     {"", pod(withTerms(0, 0, 101)), "spec.topologySpreadConstraints: Invalid value: 101"},
		"Names":           {"each is read once", pod(referring(250, 250)), ""},
		"TooManyNames":    {"each is read as the pod comes", pod(referring(250, 251)), "spec: Invalid value: 501: 501 names, at most 500 are possible (limit pod-references)"},
		"Hosts":           {"", translate.CheckIngress(&networkingv1.IngressSpec{Rules: rules(1000)}), ""},
		"TooManyHosts":    {"each is looked for among all spaces'", translate.CheckIngress(&networkingv1.IngressSpec{Rules: rules(100_000)}), "spec: Invalid value: 100000: 100000 hosts"},
		"TooManyTLSHosts": {"they are claims, too", translate.CheckIngress(&networkingv1.IngressSpec{TLS: []networkingv1.IngressTLS{{Hosts: make([]string, 1001)}}}), "spec: Invalid value: 1001"},
		"TooManyTLS":      {"", translate.CheckIngress(&networkingv1.IngressSpec{TLS: make([]networkingv1.IngressTLS, 1001)}), "spec: Invalid value: 1001"},
		"TooManyPaths":    {"", translate.CheckIngress(&networkingv1.IngressSpec{Rules: paths}), "spec.rules: Invalid value: 1001"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := fmt.Sprint(tc.errs.ToAggregate()); len(tc.errs) > 1 || (len(tc.errs) > 0) != (tc.want != "") || !strings.Contains(got, tc.want) {
				t.Errorf("%s: got %.1000s, want %q", tc.reason, got, tc.want)
			}
		})
	}
}

func egressErrs(peers ...networkingv1.NetworkPolicyPeer) field.ErrorList {
	return translate.CheckNetworkPolicy(egress(peers...))
}

// N1: what was stored before there was the check, or came by another way, is cut
// where it multiplies, and only closes.
func TestANetworkPolicyMultipliesNothing(t *testing.T) {
	some := networkingv1.NetworkPolicyPeer{PodSelector: &metav1.LabelSelector{}}
	rule := func(peers ...networkingv1.NetworkPolicyPeer) networkingv1.NetworkPolicyEgressRule {
		return networkingv1.NetworkPolicyEgressRule{To: peers}
	}
	for name, tc := range map[string]struct {
		reason     string
		rules      []networkingv1.NetworkPolicyEgressRule
		namespaces int
		left       int // peers on the host
		tells      string
	}{
		"Product": {"each peer is all namespaces", []networkingv1.NetworkPolicyEgressRule{rule(anyNamespace(1000)...)}, 1000, 10, "spec.egress[0].to[10].namespaceSelector"},
		"Looks": {"it is matched, though nothing matches", []networkingv1.NetworkPolicyEgressRule{rule(networkingv1.NetworkPolicyPeer{NamespaceSelector: &metav1.LabelSelector{
			MatchExpressions: []metav1.LabelSelectorRequirement{{Key: corev1.LabelMetadataName, Operator: metav1.LabelSelectorOpIn, Values: make([]string, 100_000)}},
		}}, some)}, 1000, 1, "spec.egress[0].to[0].namespaceSelector"},
		"Peers":      {"a rule that is too much goes, and those after it", []networkingv1.NetworkPolicyEgressRule{rule(some), rule(anyNamespace(100_000)...), rule(some)}, 1, 1, "spec.egress"},
		"Rules":      {"each is everyone, three peers", make([]networkingv1.NetworkPolicyEgressRule, 100_000), 1, 3000, "spec.egress"},
		"Exceptions": {"", []networkingv1.NetworkPolicyEgressRule{rule(block("8.0.0.0/8", exceptions(50_000)...))}, 1, 0, "spec.egress"},
		"Usual":      {"twenty namespaces by name, in a large space", []networkingv1.NetworkPolicyEgressRule{rule(named(20)...)}, 5000, 20, ""},
	} {
		t.Run(name, func(t *testing.T) {
			host, without := sample.Demo().NetworkPolicy(netPolicy(nil, tc.rules), manyNamespaces(tc.namespaces))
			left, names := 0, 0
			for _, rule := range host.Spec.Egress {
				if len(rule.To) == 0 {
					t.Fatal("a list is empty: that is everyone")
				}
				left += len(rule.To)
				for _, peer := range rule.To {
					if peer.PodSelector != nil {
						for _, e := range peer.PodSelector.MatchExpressions {
							names += len(e.Values)
						}
					}
				}
			}
			if left != tc.left || names > 12_000 {
				t.Errorf("%s: %d peers are left, want %d; with %d names", tc.reason, left, tc.left, names)
			}
			if (tc.tells == "") != (len(without) == 0) || tc.tells != "" && without[0].Field != tc.tells {
				t.Errorf("%s: told %.1000v, want %q", tc.reason, without, tc.tells)
			}
		})
	}
}

func named(count int) []networkingv1.NetworkPolicyPeer {
	out := anyNamespace(count)
	for i := range out {
		out[i].NamespaceSelector.MatchLabels = map[string]string{corev1.LabelMetadataName: fmt.Sprintf("n%d", i)}
	}
	return out
}

// N1: as for policies. A term that is over the bound is one of no pods, and the
// pod is refused before.
func TestAffinityTermsMultiplyNothing(t *testing.T) {
	v, in := sample.PlainPod(), sample.Surroundings{Namespaces: manyNamespaces(5000)}
	v.Spec.Affinity = withTerms(100, 0, 0).Affinity
	pods := v.Spec.Affinity.PodAffinity
	for i := range pods.RequiredDuringSchedulingIgnoredDuringExecution {
		pods.RequiredDuringSchedulingIgnoredDuringExecution[i].NamespaceSelector = &metav1.LabelSelector{}
		pods.RequiredDuringSchedulingIgnoredDuringExecution[i].LabelSelector = &metav1.LabelSelector{}
	}
	errs := pod.CheckNamespaces(&v.Spec, in.Namespaces)
	if len(errs) != 1 || errs[0].Field != "spec.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution[2].namespaceSelector" {
		t.Errorf("refused are %v", errs)
	}
	names := 0
	for _, e := range sample.FindAll[metav1.LabelSelectorRequirement](pod.ToHost(sample.Demo(), v, in).Spec.Affinity) {
		names += len(e.Values)
	}
	if names < 10_000 || names > 10_200 {
		t.Errorf("%d names are on the host", names)
	}
	if errs := pod.CheckNamespaces(&v.Spec, in.Namespaces[:50]); len(errs) > 0 {
		t.Errorf("in a space of fifty namespaces, refused are %v", errs)
	}
}

func referring(configMaps, secrets int) *corev1.PodSpec {
	spec := &corev1.PodSpec{Containers: []corev1.Container{{Name: "c"}}}
	for i := range configMaps {
		name := corev1.LocalObjectReference{Name: fmt.Sprint("c", i)}
		spec.Containers[0].EnvFrom = append(spec.Containers[0].EnvFrom, corev1.EnvFromSource{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: name}})
		for _, key := range []string{"a", "b"} { // which are read together
			spec.Containers[0].Env = append(spec.Containers[0].Env, corev1.EnvVar{Name: key, ValueFrom: &corev1.EnvVarSource{
				ConfigMapKeyRef: &corev1.ConfigMapKeySelector{LocalObjectReference: name, Key: key},
			}})
		}
	}
	for i := range secrets {
		spec.ImagePullSecrets = append(spec.ImagePullSecrets, corev1.LocalObjectReference{Name: fmt.Sprint("s", i)})
	}
	return spec
}
