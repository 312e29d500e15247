// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package translate

import (
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/berth-dev/berth/bounds"
	"github.com/berth-dev/berth/internal/netrange"
)

// These labels mark host pods that a tenant's policy selects, one for each direction. The space's isolation policy
// allows traffic only for pods without the label. Network policies are additive, so a tenant's policy could otherwise
// restrict nothing. With or without the label, no pod can have more traffic than the isolation allows.
const (
	LabelPolicedIngress = Domain + "/policed-ingress"
	LabelPolicedEgress  = Domain + "/policed-egress"
)

// LabelReachesPods is a label that the host's admin sets to "true" on namespaces of the host whose pods may reach the
// pods of all spaces, such as an ingress controller's.
const LabelReachesPods = Domain + "/reaches-pods"

// Outside returns the addresses, other than those of its own pods, with which a space's pods may communicate: the
// internet, without other spaces, the host's own networks, and a cloud's metadata service.
func (s Space) Outside() []networkingv1.IPBlock {
	v4, v6 := networkingv1.IPBlock{CIDR: "0.0.0.0/0"}, networkingv1.IPBlock{CIDR: "::/0"}
	for _, closed := range slices.Concat(netrange.Closed(), s.Closed) {
		if closed.Addr().Is4() {
			v4.Except = append(v4.Except, closed.String())
		} else {
			v6.Except = append(v6.Except, closed.String())
		}
	}
	return []networkingv1.IPBlock{v4, v6}
}

// Everyone returns all peers of a space's pods: each other, and [Space.Outside].
func (s Space) Everyone() []networkingv1.NetworkPolicyPeer {
	peers := []networkingv1.NetworkPolicyPeer{{PodSelector: &metav1.LabelSelector{}}}
	for _, block := range s.Outside() {
		peers = append(peers, networkingv1.NetworkPolicyPeer{IPBlock: &block})
	}
	return peers
}

// Callers returns all peers that may reach a space's pods: [Space.Everyone], and the pods of namespaces with
// [LabelReachesPods]. The space's pods can't reach the latter.
func (s Space) Callers() []networkingv1.NetworkPolicyPeer {
	return append(s.Everyone(), networkingv1.NetworkPolicyPeer{
		NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{LabelReachesPods: "true"}},
	})
}

// CheckNetworkPolicy returns an error for each limit that a policy exceeds.
func CheckNetworkPolicy(v *networkingv1.NetworkPolicy) field.ErrorList {
	ingress, egress := 0, 0
	for i := range v.Spec.Ingress {
		ingress += countPeers(v.Spec.Ingress[i].From)
	}
	for i := range v.Spec.Egress {
		egress += countPeers(v.Spec.Egress[i].To)
	}
	return append(AtMost(field.NewPath("spec", "ingress"), ingress, bounds.PolicyPeers),
		AtMost(field.NewPath("spec", "egress"), egress, bounds.PolicyPeers)...)
}

// countPeers returns what a rule counts towards [bounds.PolicyPeers].
func countPeers(rule []networkingv1.NetworkPolicyPeer) int {
	count := len(rule)
	for i := range rule {
		if block := rule[i].IPBlock; block != nil {
			count += len(block.Except)
		}
	}
	return max(count, 1)
}

// NetworkPolicy returns v's host object, and the parts of v that have no effect because a space may not allow that
// traffic. On the host, policies add to the space's isolation. So each peer of the result is one that the isolation
// allows, and a policy never allows more. All pods of a space are in one host namespace, so namespace selectors become
// the names of the namespaces that they match. Entries above the limits have no effect either; the policy may be older
// than the check.
func (s Space) NetworkPolicy(v *networkingv1.NetworkPolicy, namespaces []*corev1.Namespace) (*networkingv1.NetworkPolicy, field.ErrorList) {
	p := v.Spec.DeepCopy()
	host := &networkingv1.NetworkPolicy{
		ObjectMeta: s.ObjectMeta(v, LimitSubdomain),
		Spec:       networkingv1.NetworkPolicySpec{PodSelector: *s.Selector(&p.PodSelector, v.Namespace), PolicyTypes: policyTypes(p)},
	}
	without := CheckNetworkPolicy(v)
	t := peers{Space: s, namespace: v.Namespace, namespaces: NewSelectedNamespaces(namespaces), outside: s.Outside(), without: &without}
	left := bounds.PolicyPeers.Max()
	for i, rule := range p.Ingress {
		if left -= countPeers(rule.From); left < 0 {
			break
		}
		if from := t.translate(field.NewPath("spec", "ingress").Index(i).Child("from"), rule.From, s.Callers); len(from) > 0 {
			host.Spec.Ingress = append(host.Spec.Ingress, networkingv1.NetworkPolicyIngressRule{Ports: rule.Ports, From: from})
		}
	}
	left = bounds.PolicyPeers.Max()
	for i, rule := range p.Egress {
		if left -= countPeers(rule.To); left < 0 {
			break
		}
		if to := t.translate(field.NewPath("spec", "egress").Index(i).Child("to"), rule.To, s.Everyone); len(to) > 0 {
			host.Spec.Egress = append(host.Spec.Egress, networkingv1.NetworkPolicyEgressRule{Ports: rule.Ports, To: to})
		}
	}
	return host, without
}

// PushNetworkPolicy copies the tenant's fields of a policy to have. It reports whether anything differed.
func PushNetworkPolicy(want, have *networkingv1.NetworkPolicy) bool {
	changed := PushMeta(want, have)
	if !equality.Semantic.DeepEqual(want.Spec, have.Spec) {
		have.Spec, changed = *want.Spec.DeepCopy(), true
	}
	return changed
}

// policyTypes returns the directions to which a policy applies.
func policyTypes(p *networkingv1.NetworkPolicySpec) []networkingv1.PolicyType {
	switch {
	case len(p.PolicyTypes) > 0:
		return p.PolicyTypes
	case len(p.Egress) > 0:
		return []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress}
	default:
		return []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}
	}
}

type peers struct {
	Space
	namespace  string
	namespaces *SelectedNamespaces
	outside    []networkingv1.IPBlock
	without    *field.ErrorList
}

// translate never returns an empty list, which would allow all peers on the host, instead of only those that the
// isolation allows.
func (t peers) translate(path *field.Path, all []networkingv1.NetworkPolicyPeer, everyone func() []networkingv1.NetworkPolicyPeer) []networkingv1.NetworkPolicyPeer {
	if len(all) == 0 {
		return everyone()
	}
	var out []networkingv1.NetworkPolicyPeer
	seen := map[string]bool{}
	for i, peer := range all {
		path := path.Index(i)
		switch {
		case peer.IPBlock != nil && peer.PodSelector == nil && peer.NamespaceSelector == nil:
			blocks := within(*peer.IPBlock, t.outside)
			if len(blocks) == 0 {
				*t.without = append(*t.without, field.Forbidden(path.Child("ipBlock", "cidr"),
					peer.IPBlock.CIDR+" is closed to spaces, so the policy cannot allow it; select pods by their labels instead"))
			}
			for _, block := range blocks {
				// An equal block would only repeat the exceptions, of which there may be many.
				if key := block.CIDR + " " + strings.Join(block.Except, " "); !seen[key] {
					seen[key] = true
					out = append(out, networkingv1.NetworkPolicyPeer{IPBlock: &block})
				}
			}
		case peer.IPBlock == nil && (peer.PodSelector != nil || peer.NamespaceSelector != nil):
			names := []string{t.namespace}
			if peer.NamespaceSelector != nil {
				var ok bool
				if names, ok = t.namespaces.By(peer.NamespaceSelector); !ok {
					*t.without = append(*t.without, field.Forbidden(path.Child("namespaceSelector"), TooManySelected))
					continue
				}
				slices.Sort(names)
			}
			pods := peer.PodSelector
			if pods == nil {
				pods = &metav1.LabelSelector{}
			}
			out = append(out, networkingv1.NetworkPolicyPeer{PodSelector: t.Selector(pods, names...)})
		}
	}
	return out
}

// within returns the parts of a block that are in the allowed ones. A block that does not parse strictly has none,
// because parsers of addresses differ, for example about leading zeros.
func within(asked networkingv1.IPBlock, allowed []networkingv1.IPBlock) (parts []networkingv1.IPBlock) {
	cidr, err := netip.ParsePrefix(asked.CIDR)
	if err != nil || cidr.Addr().Is4In6() {
		return nil
	}
	cidr = cidr.Masked()
	except := make([]netip.Prefix, 0, len(asked.Except))
	for _, e := range asked.Except {
		prefix, err := netip.ParsePrefix(e)
		if err != nil || prefix.Addr().Is4In6() {
			return nil
		}
		except = append(except, prefix.Masked())
	}
	for _, a := range allowed {
		outer := netip.MustParsePrefix(a.CIDR)
		if outer.Addr().Is4() != cidr.Addr().Is4() {
			continue
		}
		part, cut := cidr, slices.Clone(except)
		if outer.Bits() > part.Bits() {
			part = outer
		}
		if !outer.Overlaps(cidr) {
			continue
		}
		for _, e := range a.Except {
			cut = append(cut, netip.MustParsePrefix(e))
		}
		if block, ok := less(part, cut); ok {
			parts = append(parts, block)
		}
	}
	return parts
}

// less returns a block with those in cut as exceptions, or false if nothing is left. The exceptions of a policy must be
// inside its block, and may not cover all of it.
func less(block netip.Prefix, cut []netip.Prefix) (out networkingv1.IPBlock, ok bool) {
	out.CIDR = block.String()
	seen := make(map[netip.Prefix]bool, len(cut))
	for _, c := range cut {
		if !c.Overlaps(block) {
			continue
		}
		if c.Bits() <= block.Bits() {
			return out, false
		}
		if !seen[c] {
			seen[c] = true
			out.Except = append(out.Except, c.String())
		}
	}
	return out, true
}

// AddPoliced labels a host pod with the directions in which tenants' policies apply to v: those of its namespace that
// select it.
func AddPoliced(host *metav1.ObjectMeta, v *corev1.Pod, policies []*networkingv1.NetworkPolicy) {
	for _, p := range policies {
		if p.Namespace != v.Namespace || !selects(&p.Spec.PodSelector, v.Labels) {
			continue
		}
		for _, direction := range policyTypes(&p.Spec) {
			switch direction {
			case networkingv1.PolicyTypeIngress:
				host.Labels[LabelPolicedIngress] = "true"
			case networkingv1.PolicyTypeEgress:
				host.Labels[LabelPolicedEgress] = "true"
			}
		}
	}
}

// SelectsNamespaces reports whether a policy's host object depends on the labels of namespaces.
func SelectsNamespaces(v *networkingv1.NetworkPolicy) bool {
	selects := func(p networkingv1.NetworkPolicyPeer) bool { return p.NamespaceSelector != nil }
	return slices.ContainsFunc(v.Spec.Ingress, func(r networkingv1.NetworkPolicyIngressRule) bool { return slices.ContainsFunc(r.From, selects) }) ||
		slices.ContainsFunc(v.Spec.Egress, func(r networkingv1.NetworkPolicyEgressRule) bool { return slices.ContainsFunc(r.To, selects) })
}
