// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package isolation_test

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/isolation"
	"github.com/berth-dev/berth/translate"
)

// objectOf finds the one isolation object of type T of a space.
func objectOf[T client.Object](t *testing.T, quota corev1.ResourceList) T {
	t.Helper()
	for _, o := range isolation.Objects(translate.Space{Name: "demo"}, quota) {
		if found, ok := o.(T); ok {
			return found
		}
	}
	t.Fatalf("no %T among the isolation objects", *new(T))
	panic("unreachable")
}

// T2, Q3: whatever the space's name, its isolation objects are in its own namespace, and
// its account's rights end there.
func TestIsolationObjectsAreInTheSpacesOwnNamespace(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.StringMatching(`[a-z0-9]([a-z0-9-]{0,40}[a-z0-9])?`).Draw(t, "space")
		space := translate.Space{Name: name}
		for _, o := range isolation.Objects(space, nil) {
			at := o.GetNamespace()
			if _, isNamespace := o.(*corev1.Namespace); isNamespace {
				at = o.GetName()
			}
			if at != space.HostNamespace() {
				t.Errorf("%T %s is in %q, want %q", o, o.GetName(), at, space.HostNamespace())
			}
			if o.GetLabels()[translate.LabelSpace] != name {
				t.Errorf("%T %s bears no label of the space", o, o.GetName())
			}
			if _, synced := translate.IdentityOf(o); synced {
				t.Errorf("%T %s records a virtual object: the syncer would delete it", o, o.GetName())
			}
			if binding, ok := o.(*rbacv1.RoleBinding); ok {
				for _, subject := range binding.Subjects {
					if subject.Namespace != space.HostNamespace() {
						t.Errorf("role bound to %v, of another namespace", subject)
					}
				}
			}
		}
	})
}

// Q3: the syncer's account may do what syncing and streams take, and nothing that
// would let it change its own isolation.
func TestTheSyncersAccountHasNoRightBeyondSyncing(t *testing.T) {
	synced := []string{
		"pods", "services", "configmaps", "secrets", "persistentvolumeclaims", "endpointslices", "endpointslices/restricted",
		"pods/log", "pods/exec", "pods/attach", "pods/portforward", "pods/ephemeralcontainers", "pods/resize",
		"serviceaccounts", "ingresses", "networkpolicies", "poddisruptionbudgets",
	}
	for _, rule := range objectOf[*rbacv1.Role](t, nil).Rules {
		if slices.Equal(rule.APIGroups, []string{"metrics.k8s.io"}) {
			if !slices.Equal(rule.Resources, []string{"pods"}) || !slices.Equal(rule.Verbs, []string{"get", "list"}) {
				t.Errorf("rule %v is for more than reading what pods use", rule)
			}
			continue
		}
		if slices.Equal(rule.Resources, []string{"sharedobjects"}) {
			if !slices.Equal(rule.APIGroups, []string{"berth.dev"}) || !slices.Equal(rule.Verbs, []string{"list", "create", "update", "delete"}) {
				t.Errorf("rule %v is for more than writing what is shared", rule)
			}
			continue
		}
		if slices.Equal(rule.Resources, []string{"pods/status"}) {
			if !slices.Equal(rule.Verbs, []string{"patch"}) {
				t.Errorf("rule %v is for more than conditions of readiness gates", rule)
			}
			continue
		}
		for _, r := range rule.Resources {
			if !slices.Contains(synced, r) {
				t.Errorf("rule for %q", r)
			}
		}
		for _, verb := range rule.Verbs {
			if !slices.Contains([]string{"get", "create", "update", "delete"}, verb) {
				t.Errorf("rule with verb %q", verb)
			}
		}
		if len(rule.NonResourceURLs) > 0 || slices.ContainsFunc(rule.APIGroups, func(g string) bool { return strings.Contains(g, "*") }) {
			t.Errorf("rule %v reaches further than a group", rule)
		}
	}
}

// Q1: the default quota applies where none is given, and bounds all that a
// tenant could flood the host with.
func TestEverySpaceHasAQuota(t *testing.T) {
	cases := map[string]struct {
		reason string
		quota  corev1.ResourceList
		want   map[corev1.ResourceName]string
	}{
		"default": {
			reason: "a space without a quota of its own is bounded, too",
			want: map[corev1.ResourceName]string{
				"pods": "200", "services.loadbalancers": "2", "services.nodeports": "5", "persistentvolumeclaims": "50",
				"secrets": "1000", "configmaps": "500", "limits.ephemeral-storage": "400Gi",
			},
		},
		"given": {
			reason: "an admin's numbers are taken as they are",
			quota:  corev1.ResourceList{"pods": resource.MustParse("3")},
			want:   map[corev1.ResourceName]string{"pods": "3"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			hard := objectOf[*corev1.ResourceQuota](t, tc.quota).Spec.Hard
			for resourceName, want := range tc.want {
				got, ok := hard[resourceName]
				if !ok || got.Cmp(resource.MustParse(want)) != 0 {
					t.Errorf("%s: %s is %s, want %s", tc.reason, resourceName, got.String(), want)
				}
			}
			if tc.quota != nil && len(hard) != len(tc.quota) {
				t.Errorf("%s: got %v", tc.reason, hard)
			}
		})
	}
}

// M4: the host refuses on its own what the space refuses first.
func TestTheHostNamespaceEnforcesPodSecurity(t *testing.T) {
	if got := objectOf[*corev1.Namespace](t, nil).Labels["pod-security.kubernetes.io/enforce"]; got != "baseline" {
		t.Errorf("enforced level is %q, want baseline", got)
	}
}

// The cloud's metadata service and other spaces' pods, which have private
// addresses, are out of reach, whatever labels a pod bears; a space's own pods
// and DNS are not.
func TestTheNetworkPoliciesLeavePrivateNetworksOut(t *testing.T) {
	open := map[networkingv1.PolicyType]int{}
	closed := false
	for _, o := range isolation.Objects(translate.Space{Name: "demo"}, nil) {
		policy, ok := o.(*networkingv1.NetworkPolicy)
		if !ok {
			continue
		}
		all := len(policy.Spec.PodSelector.MatchLabels)+len(policy.Spec.PodSelector.MatchExpressions) == 0
		closed = closed || all && len(policy.Spec.PolicyTypes) == 2
		var peers []networkingv1.NetworkPolicyPeer
		for _, rule := range policy.Spec.Ingress {
			peers = append(peers, rule.From...)
		}
		for _, rule := range policy.Spec.Egress {
			peers = append(peers, rule.To...)
		}
		for _, peer := range peers {
			if all && (peer.IPBlock != nil || peer.PodSelector != nil) {
				t.Errorf("policy %s is for all pods, so that a tenant's policies take nothing away: it allows %v", policy.Name, peer)
			}
			if peer.IPBlock == nil || peer.IPBlock.CIDR != "0.0.0.0/0" {
				continue
			}
			open[policy.Spec.PolicyTypes[0]]++
			for _, private := range []string{"169.254.0.0/16", "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16"} {
				if !slices.Contains(peer.IPBlock.Except, private) {
					t.Errorf("policy %s opens %s", policy.Name, private)
				}
			}
		}
	}
	if !closed {
		t.Error("no policy closes all pods")
	}
	if open[networkingv1.PolicyTypeIngress] != 1 || open[networkingv1.PolicyTypeEgress] != 1 {
		t.Errorf("the outside is open by %v, want one policy a direction", open)
	}
}

// S6, B19: the ports of Berth's pod are open by what selects the pod, as a network plugin may match no address with pods; where Berth is
// no pod, by its address. Nothing else is open to pods that a tenant's policies are about.
func TestTheNetworkPoliciesOpenTheDNSAndTheAPIOfASpace(t *testing.T) {
	at := translate.PodsEndpoint{Address: netip.MustParseAddr("192.0.2.10"), APIPort: 7444, DNSPort: 7453}
	pod := at
	pod.Namespace, pod.Labels = "platform", map[string]string{"app": "berth"}
	for name, test := range map[string]struct {
		at   translate.PodsEndpoint
		want networkingv1.NetworkPolicyPeer
	}{
		"no pod": {at, networkingv1.NetworkPolicyPeer{IPBlock: &networkingv1.IPBlock{CIDR: "192.0.2.10/32"}}},
		"a pod": {pod, networkingv1.NetworkPolicyPeer{
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: "platform"}},
			PodSelector:       &metav1.LabelSelector{MatchLabels: map[string]string{"app": "berth"}},
		}},
	} {
		for _, o := range isolation.Objects(translate.Space{Name: "demo", Pods: test.at}, nil) {
			policy, ok := o.(*networkingv1.NetworkPolicy)
			if !ok || policy.Name != "berth" {
				continue
			}
			if len(policy.Spec.Egress) != 1 || len(policy.Spec.Ingress) != 0 {
				t.Fatalf("%s: %v", name, policy.Spec)
			}
			rule := policy.Spec.Egress[0]
			if diff := cmp.Diff([]networkingv1.NetworkPolicyPeer{test.want}, rule.To); diff != "" {
				t.Errorf("%s: %s", name, diff)
			}
			var ports []string
			for _, p := range rule.Ports {
				ports = append(ports, string(*p.Protocol)+" "+p.Port.String())
			}
			if want := []string{"UDP 7453", "TCP 7453", "TCP 7444"}; !slices.Equal(ports, want) {
				t.Errorf("%s: open are %q, want %q", name, ports, want)
			}
		}
	}
}

func TestSpaceNamesAreChecked(t *testing.T) {
	cases := map[string]struct {
		reason string
		ok     bool
	}{
		"demo":                  {"a plain name", true},
		"a--b":                  {"dashes are the names' own affair", true},
		strings.Repeat("a", 57): {"the host namespace is just short enough", true},
		strings.Repeat("a", 58): {"the host namespace would be too long", false},
		"":                      {"empty", false},
		"Demo":                  {"upper case is no label", false},
		"a.b":                   {"dots are no label", false},
		"../x":                  {"a path", false},
		"-a":                    {"begins with a dash", false},
		"system":                {"reserved (T3)", false},
		"default":               {"the space of the default tenant (T3)", true},
		"host":                  {"its kubeconfig would be the host's", false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if err := isolation.CheckSpaceName(name); (err == nil) != tc.ok {
				t.Errorf("%s: got error %v", tc.reason, err)
			}
		})
	}
}
