// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// rules translates network policies to a script of nft. Only IPv4: the clusters of hack/kind have no other.
type rules struct {
	pods       []*corev1.Pod
	namespaces map[string]labels.Set
	policies   []*networkingv1.NetworkPolicy
}

func newRules(pods []*corev1.Pod, namespaces []*corev1.Namespace, policies []*networkingv1.NetworkPolicy) *rules {
	r := &rules{namespaces: map[string]labels.Set{}, policies: slices.Clone(policies)}
	for _, pod := range pods {
		if hasAddress(pod) {
			r.pods = append(r.pods, pod)
		}
	}
	for _, namespace := range namespaces {
		r.namespaces[namespace.Name] = namespace.Labels
	}
	// The same state has the same script.
	slices.SortFunc(r.pods, func(a, b *corev1.Pod) int { return cmp.Compare(a.Status.PodIP+a.Name, b.Status.PodIP+b.Name) })
	slices.SortFunc(r.policies, func(a, b *networkingv1.NetworkPolicy) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return r
}

// A packet of a pod that policies isolate goes to the pod's chain, which returns from it if a rule allows it and drops
// it otherwise. Answers to what was allowed are allowed. The node itself may always reach its pods. Nobody else reaches
// an address of this node's of which it is not known yet whose it is: a pod is isolated before it starts.
const table = `table inet kind-policies
delete table inet kind-policies
table inet kind-policies {
%s	chain egress {
%s	}
	chain ingress {
%s	}
	chain forward {
		type filter hook forward priority filter;
		ct state established,related accept
		jump egress
		jump ingress
	}
	chain input {
		type filter hook input priority filter;
		ct state established,related accept
		jump egress
	}
}
`

// script is the rules of a node, whose pods have addresses of a block: none if it is empty.
func (r *rules) script(node, block string) string {
	var chains, egress, ingress strings.Builder
	for _, pod := range r.pods {
		if pod.Spec.NodeName != node {
			continue
		}
		address := pod.Status.PodIP
		if allowed, isolated := r.allowedOut(pod); isolated {
			name := "out-" + address
			fmt.Fprintf(&chains, "\tchain %s {\n%s\t\tdrop\n\t}\n", name, allowed)
			fmt.Fprintf(&egress, "\t\tip saddr %s goto %s\n", address, name)
		}
		if allowed, isolated := r.allowedIn(pod); isolated {
			name := "in-" + address
			fmt.Fprintf(&chains, "\tchain %s {\n%s\t\tdrop\n\t}\n", name, allowed)
			fmt.Fprintf(&ingress, "\t\tip daddr %s goto %s\n", address, name)
		} else {
			fmt.Fprintf(&ingress, "\t\tip daddr %s return\n", address)
		}
	}
	if block != "" {
		fmt.Fprintf(&ingress, "\t\tip daddr %s drop\n", block)
	}
	return fmt.Sprintf(table, chains.String(), egress.String(), ingress.String())
}

func (r *rules) allowedIn(pod *corev1.Pod) (string, bool) {
	var lines strings.Builder
	isolated := false
	for _, policy := range r.policies {
		if !has(policy, networkingv1.PolicyTypeIngress) || !selects(policy, pod) {
			continue
		}
		isolated = true
		for _, rule := range policy.Spec.Ingress {
			for _, peers := range r.peers(policy.Namespace, rule.From) {
				for _, port := range ports(rule.Ports, pod) {
					lines.WriteString(line("saddr", peers, port))
				}
			}
		}
	}
	return lines.String(), isolated
}

func (r *rules) allowedOut(pod *corev1.Pod) (string, bool) {
	var lines strings.Builder
	isolated := false
	for _, policy := range r.policies {
		if !has(policy, networkingv1.PolicyTypeEgress) || !selects(policy, pod) {
			continue
		}
		isolated = true
		for _, rule := range policy.Spec.Egress {
			for _, peers := range r.peers(policy.Namespace, rule.To) {
				for _, port := range ports(rule.Ports, peers.pod) {
					lines.WriteString(line("daddr", peers, port))
				}
			}
		}
	}
	return lines.String(), isolated
}

// peer is some addresses, or all with neither field set. The pod tells what a port's name means there.
type peer struct {
	pod   *corev1.Pod
	block *networkingv1.IPBlock
}

func (r *rules) peers(namespace string, from []networkingv1.NetworkPolicyPeer) []peer {
	if len(from) == 0 {
		return []peer{{}}
	}
	var all []peer
	for _, p := range from {
		if p.IPBlock != nil {
			all = append(all, peer{block: p.IPBlock})
			continue
		}
		for _, pod := range r.pods {
			inNamespace := pod.Namespace == namespace
			if p.NamespaceSelector != nil {
				inNamespace = matches(p.NamespaceSelector, r.namespaces[pod.Namespace])
			}
			if inNamespace && (p.PodSelector == nil || matches(p.PodSelector, pod.Labels)) {
				all = append(all, peer{pod: pod})
			}
		}
	}
	return all
}

func selects(policy *networkingv1.NetworkPolicy, pod *corev1.Pod) bool {
	return policy.Namespace == pod.Namespace && matches(&policy.Spec.PodSelector, pod.Labels)
}

func matches(selector *metav1.LabelSelector, set labels.Set) bool {
	parsed, err := metav1.LabelSelectorAsSelector(selector)
	return err == nil && parsed.Matches(set)
}

// ports writes each port as nft matches it; all of them are an empty match. A name that the pod does not know is none.
func ports(wanted []networkingv1.NetworkPolicyPort, pod *corev1.Pod) []string {
	if len(wanted) == 0 {
		return []string{""}
	}
	var all []string
	for _, port := range wanted {
		protocol := corev1.ProtocolTCP
		if port.Protocol != nil {
			protocol = *port.Protocol
		}
		name := strings.ToLower(string(protocol))
		switch {
		case port.Port == nil:
			all = append(all, "meta l4proto "+name)
		case port.Port.Type == intstr.String:
			if number := named(pod, protocol, port.Port.StrVal); number != 0 {
				all = append(all, fmt.Sprintf("%s dport %d", name, number))
			}
		case port.EndPort != nil:
			all = append(all, fmt.Sprintf("%s dport %d-%d", name, port.Port.IntVal, *port.EndPort))
		default:
			all = append(all, fmt.Sprintf("%s dport %d", name, port.Port.IntVal))
		}
	}
	return all
}

func named(pod *corev1.Pod, protocol corev1.Protocol, name string) int32 {
	if pod == nil {
		return 0
	}
	for _, container := range pod.Spec.Containers {
		for _, port := range container.Ports {
			if port.Name == name && port.Protocol == protocol {
				return port.ContainerPort
			}
		}
	}
	return 0
}

func line(side string, p peer, port string) string {
	var match []string
	switch {
	case p.pod != nil:
		match = append(match, "ip", side, p.pod.Status.PodIP)
	case p.block != nil && strings.Contains(p.block.CIDR, ":"):
		return ""
	case p.block != nil:
		match = append(match, "ip", side, p.block.CIDR)
		if len(p.block.Except) > 0 {
			match = append(match, "ip", side, "!= {", strings.Join(p.block.Except, ", "), "}")
		}
	}
	if port != "" {
		match = append(match, port)
	}
	return "\t\t" + strings.Join(append(match, "return"), " ") + "\n"
}
