// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package syncer_test

import (
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berth-dev/berth/translate"
)

// S1, M4: a policy of the tenant's takes away from its pods what Berth's own
// policies let through, and opens nothing that these do not.
func TestANetworkPolicyAppliesWithinTheWalls(t *testing.T) {
	t.Parallel()
	env := synced(t, "netpol")
	ours, theirs := env.virtual.NetworkingV1().NetworkPolicies("default"), env.host.NetworkingV1().NetworkPolicies(env.space.HostNamespace())
	isolating, err := theirs.List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	pod := newPod("web")
	pod.Labels = map[string]string{"app": "web"}
	must(t, env.virtual.CoreV1().Pods("default").Create, pod)
	hostPods := env.host.CoreV1().Pods(env.space.HostNamespace())
	policed := func(want bool) func(*corev1.Pod) error {
		return func(h *corev1.Pod) error {
			_, ingress := h.Labels[translate.LabelPolicedIngress]
			_, egress := h.Labels[translate.LabelPolicedEgress]
			if ingress || egress != want {
				return fmt.Errorf("labels are %v", h.Labels)
			}
			return nil
		}
	}
	awaited(t, "see the pod", hostPods.Get, env.hostName("web"), policed(false))

	must(t, ours.Create, &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: "out"}, Spec: networkingv1.NetworkPolicySpec{
		PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}, PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeEgress},
		Egress: []networkingv1.NetworkPolicyEgressRule{
			{To: []networkingv1.NetworkPolicyPeer{{IPBlock: &networkingv1.IPBlock{CIDR: "169.254.169.254/32"}}}},
			{To: []networkingv1.NetworkPolicyPeer{{NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"team": "a"}}}}},
		},
	}})
	named := func(want ...string) func(*networkingv1.NetworkPolicy) error {
		return func(h *networkingv1.NetworkPolicy) error {
			if len(h.Spec.Egress) != 1 || len(h.Spec.Egress[0].To) != 1 || h.Spec.Egress[0].To[0].PodSelector == nil {
				return fmt.Errorf("egress is to %v", h.Spec.Egress)
			}
			for _, e := range h.Spec.Egress[0].To[0].PodSelector.MatchExpressions {
				if e.Key == translate.LabelNamespace && slices.Equal(e.Values, want) {
					return nil
				}
			}
			if len(want) == 0 {
				return nil
			}
			return fmt.Errorf("egress is to %v, want %v", h.Spec.Egress, want)
		}
	}
	awaited(t, "see the policy on the host", theirs.Get, env.hostName("out"), named())
	awaited(t, "see the pod lose what Berth's own policies allow", hostPods.Get, env.hostName("web"), policed(true))
	env.awaitWarning(t, "NetworkPolicy", "out", "spec.egress[0].to[0].ipBlock.cidr", "169.254.169.254/32")

	must(t, env.virtual.CoreV1().Namespaces().Create, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", Labels: map[string]string{"team": "a"}}})
	awaited(t, "see a namespace join", theirs.Get, env.hostName("out"), named("shop"))

	if err := ours.Delete(t.Context(), "out", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	awaitedGone(t, "see the policy gone", theirs.Get, env.hostName("out"))
	awaited(t, "see the pod open again", hostPods.Get, env.hostName("web"), policed(false))
	after, err := theirs.List(t.Context(), metav1.ListOptions{})
	if err != nil || len(after.Items) != len(isolating.Items) || len(isolating.Items) == 0 {
		t.Errorf("of Berth's own policies %d are left, were %d: %v", len(after.Items), len(isolating.Items), err)
	}
}
