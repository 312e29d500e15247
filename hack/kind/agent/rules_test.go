// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

func pod(namespace, name, address string, change ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{"app": name}},
		Spec: corev1.PodSpec{NodeName: "here", Containers: []corev1.Container{{
			Ports: []corev1.ContainerPort{{Name: "web", ContainerPort: 8080, Protocol: corev1.ProtocolTCP}},
		}}},
		Status: corev1.PodStatus{PodIP: address},
	}
	for _, f := range change {
		f(p)
	}
	return p
}

func app(name string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}}
}

// What a packet from or to the pod "server" of namespace a may be, by the policies of a.
func TestRulesAllowWhatPoliciesNameAndDropTheRest(t *testing.T) {
	udp, web, number, last := corev1.ProtocolUDP, intstr.FromString("web"), intstr.FromInt32(8000), int32(8009)
	in, out := networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress
	pods := []*corev1.Pod{
		pod("a", "server", "10.0.0.1"),
		pod("a", "client", "10.0.0.2"),
		pod("b", "client", "10.0.0.3"),
		pod("a", "elsewhere", "10.0.1.1", func(p *corev1.Pod) { p.Spec.NodeName = "there" }),
		pod("a", "ended", "10.0.0.9", func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }),
		pod("a", "node", "172.18.0.2", func(p *corev1.Pod) { p.Spec.HostNetwork = true }),
	}
	namespaces := []*corev1.Namespace{
		{ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: map[string]string{"n": "a"}}},
		{ObjectMeta: metav1.ObjectMeta{Name: "b", Labels: map[string]string{"n": "b"}}},
	}
	for reason, test := range map[string]struct {
		spec  networkingv1.NetworkPolicySpec
		chain string
		want  []string
	}{
		"a policy without rules allows nothing": {
			spec:  networkingv1.NetworkPolicySpec{PolicyTypes: []networkingv1.PolicyType{in}},
			chain: "in-10.0.0.1", want: []string{"drop"},
		},
		"a rule without peers and ports allows all": {
			spec: networkingv1.NetworkPolicySpec{
				PolicyTypes: []networkingv1.PolicyType{in}, Ingress: []networkingv1.NetworkPolicyIngressRule{{}},
			},
			chain: "in-10.0.0.1", want: []string{"return", "drop"},
		},
		"pods are those of the policy's namespace, that run on a network of their own": {
			spec: networkingv1.NetworkPolicySpec{
				PolicyTypes: []networkingv1.PolicyType{in},
				Ingress:     []networkingv1.NetworkPolicyIngressRule{{From: []networkingv1.NetworkPolicyPeer{{PodSelector: &metav1.LabelSelector{}}}}},
			},
			chain: "in-10.0.0.1",
			want:  []string{"ip saddr 10.0.0.1 return", "ip saddr 10.0.0.2 return", "ip saddr 10.0.1.1 return", "drop"},
		},
		"with a selector of namespaces, pods are theirs": {
			spec: networkingv1.NetworkPolicySpec{
				PolicyTypes: []networkingv1.PolicyType{in},
				Ingress: []networkingv1.NetworkPolicyIngressRule{{From: []networkingv1.NetworkPolicyPeer{{
					PodSelector: app("client"), NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"n": "b"}},
				}}}},
			},
			chain: "in-10.0.0.1", want: []string{"ip saddr 10.0.0.3 return", "drop"},
		},
		"ports have a protocol, a name on this pod, or a range": {
			spec: networkingv1.NetworkPolicySpec{
				PolicyTypes: []networkingv1.PolicyType{in},
				Ingress: []networkingv1.NetworkPolicyIngressRule{{Ports: []networkingv1.NetworkPolicyPort{
					{Protocol: &udp}, {Port: &web}, {Port: &number, EndPort: &last}, {Protocol: &udp, Port: &number}, {Protocol: &udp, Port: &web},
				}}},
			},
			chain: "in-10.0.0.1",
			want:  []string{"meta l4proto udp return", "tcp dport 8080 return", "tcp dport 8000-8009 return", "udp dport 8000 return", "drop"},
		},
		"a block has exceptions, and those of IPv6 match nothing here": {
			spec: networkingv1.NetworkPolicySpec{
				PolicyTypes: []networkingv1.PolicyType{out},
				Egress: []networkingv1.NetworkPolicyEgressRule{{To: []networkingv1.NetworkPolicyPeer{
					{IPBlock: &networkingv1.IPBlock{CIDR: "0.0.0.0/0", Except: []string{"10.0.0.0/8", "172.16.0.0/12"}}},
					{IPBlock: &networkingv1.IPBlock{CIDR: "::/0"}},
				}}},
			},
			chain: "out-10.0.0.1",
			want:  []string{"ip daddr 0.0.0.0/0 ip daddr != { 10.0.0.0/8, 172.16.0.0/12 } return", "drop"},
		},
		"a pod that no policy selects has no chain": {
			spec: networkingv1.NetworkPolicySpec{
				PodSelector: *app("nobody"), PolicyTypes: []networkingv1.PolicyType{in, out},
			},
			chain: "in-10.0.0.1",
		},
		"a policy of one direction leaves the other": {
			spec:  networkingv1.NetworkPolicySpec{PolicyTypes: []networkingv1.PolicyType{out}},
			chain: "in-10.0.0.1",
		},
		"another node's pods are that node's to guard": {
			spec:  networkingv1.NetworkPolicySpec{PolicyTypes: []networkingv1.PolicyType{in}},
			chain: "in-10.0.1.1",
		},
		"pods of other namespaces are not the policy's": {
			spec:  networkingv1.NetworkPolicySpec{PolicyTypes: []networkingv1.PolicyType{in}},
			chain: "in-10.0.0.3",
		},
	} {
		t.Run(reason, func(t *testing.T) {
			policy := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "p"}, Spec: test.spec}
			script := newRules(pods, namespaces, []*networkingv1.NetworkPolicy{policy}).script("here", "10.0.0.0/24")
			if got := chain(script, test.chain); !slices.Equal(got, test.want) {
				t.Errorf("chain %s is %q, want %q, in\n%s", test.chain, got, test.want, script)
			}
			if jumps := strings.Count(script, "goto "+test.chain+"\n"); jumps != min(len(test.want), 1) {
				t.Errorf("%d rules lead to chain %s, in\n%s", jumps, test.chain, script)
			}
		})
	}
}

func TestNobodyReachesAPodBeforeItsPoliciesAreKnown(t *testing.T) {
	policy := &networkingv1.NetworkPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "p"},
		Spec:       networkingv1.NetworkPolicySpec{PodSelector: *app("closed"), PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}},
	}
	pods := []*corev1.Pod{
		pod("a", "closed", "10.0.0.1"),
		pod("a", "open", "10.0.0.2"),
		pod("a", "elsewhere", "10.0.1.1", func(p *corev1.Pod) { p.Spec.NodeName = "there" }),
		pod("a", "waits", ""),
	}
	for block, last := range map[string][]string{"10.0.0.0/24": {"ip daddr 10.0.0.0/24 drop"}, "": nil} {
		script := newRules(pods, nil, []*networkingv1.NetworkPolicy{policy}).script("here", block)
		want := append([]string{"ip daddr 10.0.0.1 goto in-10.0.0.1", "ip daddr 10.0.0.2 return"}, last...)
		if got := chain(script, "ingress"); !slices.Equal(got, want) {
			t.Errorf("with addresses of %q, what comes in meets %q, want %q", block, got, want)
		}
	}
}

// chain returns the rules of a chain of a script, nil if it has none.
func chain(script, name string) []string {
	_, after, found := strings.Cut(script, "\tchain "+name+" {\n")
	if !found {
		return nil
	}
	body, _, _ := strings.Cut(after, "\t}\n")
	rules := strings.Split(strings.TrimSpace(body), "\n")
	for i := range rules {
		rules[i] = strings.TrimSpace(rules[i])
	}
	return rules
}
