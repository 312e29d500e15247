// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package translate_test

import (
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"

	"github.com/berth-dev/berth/translate"
	"github.com/berth-dev/berth/translate/pod"
	"github.com/berth-dev/berth/translate/sample"
)

func netPolicy(ingress []networkingv1.NetworkPolicyIngressRule, egress []networkingv1.NetworkPolicyEgressRule) *networkingv1.NetworkPolicy {
	return &networkingv1.NetworkPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p", UID: "p-uid", Labels: map[string]string{"a": "b"}},
		Spec: networkingv1.NetworkPolicySpec{
			PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
			PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress},
			Ingress:     ingress, Egress: egress,
		},
	}
}

func egress(peers ...networkingv1.NetworkPolicyPeer) *networkingv1.NetworkPolicy {
	return netPolicy(nil, []networkingv1.NetworkPolicyEgressRule{{To: peers}})
}

func block(cidr string, except ...string) networkingv1.NetworkPolicyPeer {
	return networkingv1.NetworkPolicyPeer{IPBlock: &networkingv1.IPBlock{CIDR: cidr, Except: except}}
}

func spaceNamespaces() []*corev1.Namespace {
	named := func(name, team string) *corev1.Namespace {
		return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"team": team, corev1.LabelMetadataName: name}}}
	}
	return []*corev1.Namespace{named("default", "a"), named("shop", "a"), named("kube-system", "b")}
}

// S1: one policy, whole, as the host gets it.
func TestANetworkPolicyIsNarrowedToItsSpace(t *testing.T) {
	port := []networkingv1.NetworkPolicyPort{{Port: ptr.To(intstr.FromString("http")), EndPort: nil}}
	v := netPolicy([]networkingv1.NetworkPolicyIngressRule{{Ports: port, From: []networkingv1.NetworkPolicyPeer{
		{PodSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "client"}}},
		{NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"team": "a"}}},
	}}}, nil)
	v.Spec.PolicyTypes = []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}
	in := func(key string, values ...string) metav1.LabelSelectorRequirement {
		return metav1.LabelSelectorRequirement{Key: key, Operator: metav1.LabelSelectorOpIn, Values: values}
	}
	want := &networkingv1.NetworkPolicy{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "berth-demo", Name: "demo--default--p",
			Labels:      map[string]string{"app.kubernetes.io/managed-by": "berth", "berth.dev/space": "demo", "berth.dev/namespace": "default"},
			Annotations: map[string]string{"berth.dev/namespace": "default", "berth.dev/name": "p", "berth.dev/uid": "p-uid"},
		},
		Spec: networkingv1.NetworkPolicySpec{
			PodSelector: metav1.LabelSelector{
				MatchLabels:      map[string]string{"app": "web"},
				MatchExpressions: []metav1.LabelSelectorRequirement{in("berth.dev/space", "demo"), in("berth.dev/namespace", "default")},
			},
			PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress},
			Ingress: []networkingv1.NetworkPolicyIngressRule{{Ports: port, From: []networkingv1.NetworkPolicyPeer{
				{PodSelector: &metav1.LabelSelector{
					MatchLabels:      map[string]string{"app": "client"},
					MatchExpressions: []metav1.LabelSelectorRequirement{in("berth.dev/space", "demo"), in("berth.dev/namespace", "default")},
				}},
				{PodSelector: &metav1.LabelSelector{
					MatchExpressions: []metav1.LabelSelectorRequirement{in("berth.dev/space", "demo"), in("berth.dev/namespace", "default", "shop")},
				}},
			}}},
		},
	}
	before := v.DeepCopy()
	host, without := sample.Demo().NetworkPolicy(v, spaceNamespaces())
	if diff := cmp.Diff(want, host); diff != "" || len(without) > 0 {
		t.Errorf("host policy, without %v: -want +got:\n%s", without, diff)
	}
	if diff := cmp.Diff(before, v); diff != "" {
		t.Errorf("the argument changed: -before +after:\n%s", diff)
	}
	sample.CheckNoSharedMemory(t, v, host)
}

// M4: what a tenant may write to get past Berth's own policies, which add up with
// its policies on the host.
func TestANetworkPolicyOpensNothing(t *testing.T) {
	public := []string{
		"10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "0.0.0.0/8", "127.0.0.0/8", "169.254.0.0/16",
		"168.63.129.16/32", "192.0.0.0/24", "224.0.0.0/4", "198.18.0.0/15", "240.0.0.0/4",
	}
	public6 := []string{"fc00::/7", "::/96", "64:ff9b::/96", "64:ff9b:1::/48", "2001::/32", "2002::/16", "fe80::/10", "fec0::/10", "ff00::/8"}
	cases := map[string]struct {
		reason string
		asked  networkingv1.NetworkPolicyPeer
		want   []networkingv1.NetworkPolicyPeer // nil: no rule at all
	}{
		"the metadata service":     {"the isolation excepts it", block("169.254.169.254/32"), nil},
		"Azure's own services":     {"the metadata service is there", block("168.63.129.16/32"), nil},
		"Oracle's":                 {"the metadata service is there", block("192.0.0.192/32"), nil},
		"benchmarks":               {"some clusters have their nodes there", block("198.18.0.0/16"), nil},
		"reserved":                 {"some clusters have their pods there", block("240.0.0.0/5"), nil},
		"NAT64":                    {"it is 169.254.169.254 behind a translator", block("64:ff9b::a9fe:a9fe/128"), nil},
		"6to4":                     {"it is 10.0.0.1 behind a tunnel", block("2002:a00:1::/48"), nil},
		"the admin's":              {"it is closed to this space", block("203.0.113.0/25"), nil},
		"around the admin's":       {"less what is closed to this space", block("203.0.112.0/20"), []networkingv1.NetworkPolicyPeer{block("203.0.112.0/20", "203.0.113.0/24")}},
		"a private network":        {"other spaces' pods are there", block("10.0.0.0/8"), nil},
		"part of one":              {"other spaces' pods are there", block("10.244.1.0/24"), nil},
		"everything":               {"less what the isolation excepts", block("0.0.0.0/0"), []networkingv1.NetworkPolicyPeer{block("0.0.0.0/0", public...)}},
		"around a private network": {"less what the isolation excepts", block("8.0.0.0/6"), []networkingv1.NetworkPolicyPeer{block("8.0.0.0/6", "10.0.0.0/8")}},
		"a public address":         {"as on any cluster", block("8.8.8.8/32"), []networkingv1.NetworkPolicyPeer{block("8.8.8.8/32")}},
		"with exceptions":          {"both are heeded", block("8.0.0.0/6", "8.8.0.0/16"), []networkingv1.NetworkPolicyPeer{block("8.0.0.0/6", "8.8.0.0/16", "10.0.0.0/8")}},
		"host bits":                {"the network is meant", block("8.8.8.8/24"), []networkingv1.NetworkPolicyPeer{block("8.8.8.0/24")}},
		"all of IPv6":              {"less what the isolation excepts", block("::/0"), []networkingv1.NetworkPolicyPeer{block("::/0", public6...)}},
		"a unique local address":   {"the isolation excepts it", block("fd00::1/128"), nil},
		"IPv4 in IPv6":             {"it is 10.0.0.0/8 to some", block("::ffff:10.0.0.0/104"), nil},
		"the metadata service so":  {"it is 169.254.169.254 to some", block("::ffff:169.254.169.254/128"), nil},
		"leading zeros":            {"octal to some, decimal to others", block("012.0.0.1/32"), nil},
		"a broken exception":       {"nobody knows what is left", block("8.8.8.0/24", "08.8.8.8/32"), nil},
		"nothing left":             {"an exception may not be all", block("8.8.8.0/24", "8.0.0.0/8"), nil},
		"a block and a selector":   {"no API server takes it", networkingv1.NetworkPolicyPeer{IPBlock: &networkingv1.IPBlock{CIDR: "8.8.8.8/32"}, PodSelector: &metav1.LabelSelector{}}, nil},
		"nothing in a list":        {"it is not everyone", networkingv1.NetworkPolicyPeer{}, nil},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			space := sample.Demo()
			if strings.HasSuffix(name, "the admin's") {
				space.Closed = []netip.Prefix{netip.MustParsePrefix("203.0.113.0/24")}
			}
			host, _ := space.NetworkPolicy(egress(tc.asked), spaceNamespaces())
			var want []networkingv1.NetworkPolicyEgressRule
			if tc.want != nil {
				want = []networkingv1.NetworkPolicyEgressRule{{To: tc.want}}
			}
			if diff := cmp.Diff(want, host.Spec.Egress); diff != "" {
				t.Errorf("%s: -want +got:\n%s", tc.reason, diff)
			}
		})
	}
}

// L3: what is asked for many times, with all that is closed in it, is said once.
func TestHostileRepetitionsOfABlockAreWrittenOnce(t *testing.T) {
	var many []networkingv1.NetworkPolicyPeer
	for range 1000 {
		many = append(many, block("0.0.0.0/0"))
	}
	host, _ := sample.Demo().NetworkPolicy(egress(many...), nil)
	if to := host.Spec.Egress[0].To; len(to) != 1 {
		t.Errorf("%d peers on the host, want 1", len(to))
	}
}

// What is closed is told, with its field; the rest of the policy holds.
func TestWhatOfANetworkPolicyHasNoEffectIsTold(t *testing.T) {
	host, without := sample.Demo().NetworkPolicy(egress(block("10.0.0.0/8"), block("8.8.8.8/32")), nil)
	if len(without) != 1 || without[0].Field != "spec.egress[0].to[0].ipBlock.cidr" {
		t.Errorf("told %v", without)
	}
	if len(host.Spec.Egress) != 1 || len(host.Spec.Egress[0].To) != 1 {
		t.Errorf("the other peer is gone, too: %v", host.Spec.Egress)
	}
}

// Rules without peers are for everyone: on the host, everyone whom the isolation lets
// through, and never an empty list.
func TestEveryoneIsWhomTheIsolationLetsThrough(t *testing.T) {
	host, _ := sample.Demo().NetworkPolicy(netPolicy([]networkingv1.NetworkPolicyIngressRule{{}}, []networkingv1.NetworkPolicyEgressRule{{}}), nil)
	if diff := cmp.Diff(sample.Demo().Callers(), host.Spec.Ingress[0].From); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(sample.Demo().Everyone(), host.Spec.Egress[0].To); diff != "" {
		t.Error(diff)
	}
}

// M4: whatever a policy holds, well-formed or not, each of its peers on the host
// is the space's own pods, or addresses that the isolation lets through.
func TestNoNetworkPolicyReachesPastTheIsolation(t *testing.T) {
	inside := []string{"169.254.169.254", "10.0.0.1", "10.255.0.9", "100.64.3.4", "172.31.255.255", "192.168.0.1", "fd00::1", "fe80::1"}
	cidrs := []string{
		"0.0.0.0/0", "0.0.0.0/1", "128.0.0.0/1", "10.0.0.0/7", "10.0.0.0/8", "169.254.169.254/32", "169.254.0.0/15", "192.0.0.0/2", "172.16.0.0/11", "8.8.8.8/32",
		"::/0", "fc00::/6", "fe80::/9", "fd00::1/128", "2001:db8::/32", "::ffff:0:0/96", "::ffff:a00:0/104", "", "x", "1.2.3.4",
	}
	rapid.Check(t, func(t *rapid.T) {
		v := &networkingv1.NetworkPolicy{}
		sample.Fill(t, reflect.ValueOf(v).Elem(), 8)
		v.Namespace, v.Name = "default", "p"
		for range rapid.IntRange(0, 3).Draw(t, "rules") {
			peers := []networkingv1.NetworkPolicyPeer{}
			for range rapid.IntRange(0, 3).Draw(t, "peers") {
				peer := networkingv1.NetworkPolicyPeer{}
				sample.Fill(t, reflect.ValueOf(&peer).Elem(), 6)
				if rapid.Bool().Draw(t, "block") {
					peer = block(sample.Of(t, "cidr", cidrs...), rapid.SliceOfN(rapid.SampledFrom(cidrs), 0, 2).Draw(t, "except")...)
				}
				peers = append(peers, peer)
			}
			v.Spec.Egress = append(v.Spec.Egress, networkingv1.NetworkPolicyEgressRule{To: peers})
			v.Spec.Ingress = append(v.Spec.Ingress, networkingv1.NetworkPolicyIngressRule{From: peers})
		}
		host, _ := sample.Demo().NetworkPolicy(v, sample.AnySurroundings(t, "default").Namespaces)
		onlyTheSpaces(t, &host.Spec.PodSelector)
		var lists [][]networkingv1.NetworkPolicyPeer
		for _, rule := range host.Spec.Ingress {
			if reflect.DeepEqual(rule.From, sample.Demo().Callers()) { // those whom the admin lets in, and only in
				continue
			}
			lists = append(lists, rule.From)
		}
		for _, rule := range host.Spec.Egress {
			lists = append(lists, rule.To)
		}
		for _, peers := range lists {
			if len(peers) == 0 {
				t.Fatal("a rule without peers is for everyone")
			}
			for _, peer := range peers {
				switch {
				case peer.NamespaceSelector != nil:
					t.Fatalf("peer %v is of other namespaces", peer)
				case peer.IPBlock != nil && peer.PodSelector == nil:
					for _, address := range inside {
						if contains(*peer.IPBlock, address) {
							t.Fatalf("peer %v opens %s", peer.IPBlock, address)
						}
					}
				case peer.PodSelector != nil && peer.IPBlock == nil:
					if !reflect.DeepEqual(peer, sample.Demo().Everyone()[0]) { // all pods of the host namespace
						onlyTheSpaces(t, peer.PodSelector)
					}
				default:
					t.Fatalf("peer %v is neither", peer)
				}
			}
		}
		sample.CheckNoSharedMemory(t, v, host)
	})
}

// onlyTheSpaces fails unless a selector asks for the label of the space.
func onlyTheSpaces(t *rapid.T, selector *metav1.LabelSelector) {
	for _, e := range selector.MatchExpressions {
		if e.Key == translate.LabelSpace && e.Operator == metav1.LabelSelectorOpIn && slices.Equal(e.Values, []string{"demo"}) {
			return
		}
	}
	t.Fatalf("selector %v is not for the space only", selector)
}

func contains(b networkingv1.IPBlock, address string) bool {
	ip := netip.MustParseAddr(address)
	if !netip.MustParsePrefix(b.CIDR).Contains(ip) {
		return false
	}
	return !slices.ContainsFunc(b.Except, func(e string) bool { return netip.MustParsePrefix(e).Contains(ip) })
}

// A block that is narrowed lets through what it did, but for what the isolation
// refuses: nothing more, and nothing less.
func TestAnAddressBlockIsNarrowedPrecisely(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		prefix := func(label string) string {
			b := rapid.SliceOfN(rapid.Byte(), 4, 4).Draw(t, label)
			return netip.PrefixFrom(netip.AddrFrom4([4]byte(b)), rapid.IntRange(0, 32).Draw(t, label+" bits")).Masked().String()
		}
		asked := networkingv1.IPBlock{CIDR: prefix("cidr")}
		for range rapid.IntRange(0, 2).Draw(t, "exceptions") {
			asked.Except = append(asked.Except, prefix("except"))
		}
		host, _ := sample.Demo().NetworkPolicy(egress(networkingv1.NetworkPolicyPeer{IPBlock: &asked}), nil)
		outer := netip.MustParsePrefix(asked.CIDR)
		for range 20 {
			probe := outer.Addr().As4()
			for i := outer.Bits(); i < 32; i++ {
				if rapid.Bool().Draw(t, "bit") {
					probe[i/8] |= 1 << (7 - i%8)
				}
			}
			address := netip.AddrFrom4(probe).String()
			want := contains(asked, address) && contains(sample.Demo().Outside()[0], address)
			got := len(host.Spec.Egress) > 0 && contains(*host.Spec.Egress[0].To[0].IPBlock, address)
			if got != want {
				t.Fatalf("%s: reached %v, want %v, by %v", address, got, want, host.Spec.Egress)
			}
		}
	})
}

// A policy takes away: pods that it selects lose the isolation's opening, in the
// directions that it is about, and no others do.
func TestPodsUnderAPolicyAreMarked(t *testing.T) {
	labelled := func(namespace, app string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "x", Labels: map[string]string{"app": app, translate.LabelPolicedEgress: "no"}}}
	}
	selecting := func(app string, types ...networkingv1.PolicyType) *networkingv1.NetworkPolicy {
		p := netPolicy(nil, nil)
		p.Spec.PodSelector.MatchLabels, p.Spec.PolicyTypes = map[string]string{"app": app}, types
		return p
	}
	both := []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress}
	cases := map[string]struct {
		reason          string
		pod             *corev1.Pod
		policies        []*networkingv1.NetworkPolicy
		ingress, egress bool
	}{
		"none":            {"the isolation's opening is for it", labelled("default", "web"), nil, false, false},
		"both":            {"the policy says so", labelled("default", "web"), []*networkingv1.NetworkPolicy{selecting("web", both...)}, true, true},
		"one each":        {"policies add up", labelled("default", "web"), []*networkingv1.NetworkPolicy{selecting("web", both[0]), selecting("web", both[1])}, true, true},
		"not selected":    {"it is about others", labelled("default", "db"), []*networkingv1.NetworkPolicy{selecting("web", both...)}, false, false},
		"other namespace": {"policies are of a namespace", labelled("shop", "web"), []*networkingv1.NetworkPolicy{selecting("web", both...)}, false, false},
		"by default":      {"ingress always", labelled("default", "web"), []*networkingv1.NetworkPolicy{selecting("web")}, true, false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			host := pod.ToHost(sample.Demo(), tc.pod, sample.Surroundings{Policies: tc.policies})
			got := labels.Set(host.Labels)
			if got.Has(translate.LabelPolicedIngress) != tc.ingress || got.Has(translate.LabelPolicedEgress) != tc.egress {
				t.Errorf("%s: %v", tc.reason, host.Labels)
			}
		})
	}
}
