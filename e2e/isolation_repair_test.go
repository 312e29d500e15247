// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// S21: what isolates a space is put back when somebody changes it, also while the space sleeps, which stays asleep. What an admin
// may change stays.
func TestIsolationIsPutBack(t *testing.T) {
	t.Parallel()
	b := start(t, "--space", "a", "--idle-after", "2s")
	host := b.host(t)
	b.awaitState(t, "a", "Asleep")
	const ns = "berth-a"
	policies, bindings, admission := host.NetworkingV1().NetworkPolicies(ns), host.RbacV1().RoleBindings(ns), host.AdmissionregistrationV1()

	// What is the admin's.
	host.kubectl(t, "patch", "resourcequota", "berth", "-n", ns, "--type=merge", "-p", `{"spec":{"hard":{"pods":"7"}}}`)
	host.kubectl(t, "label", "namespace", ns, "cost-center=4711")
	host.apply(t, `{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: monitoring, namespace: berth-a}, spec: {podSelector: {}, ingress: [{}]}}`)

	binding := must(bindings.Get(t.Context(), "berth-syncer", metav1.GetOptions{}))(t)
	host.kubectl(t, "delete", "networkpolicy", "berth-egress", "-n", ns)
	host.kubectl(t, "patch", "networkpolicy", "berth", "-n", ns, "--type=merge", "-p", `{"spec":{"ingress":[{}],"egress":[{}]}}`)
	host.kubectl(t, "label", "namespace", ns, "pod-security.kubernetes.io/enforce-")
	host.kubectl(t, "delete", "rolebinding", "berth-syncer", "-n", ns)
	host.kubectl(t, "patch", "validatingadmissionpolicy", "berth-space-pods", "--type=merge", "-p", `{"spec":{"matchConditions":[{"name":"never","expression":"false"}]}}`)
	host.kubectl(t, "delete", "validatingadmissionpolicybinding", "berth-space-accounts")

	await(t, policies.Get, "berth-egress", there)
	await(t, policies.Get, "berth", func(p *networkingv1.NetworkPolicy) error {
		return errors.Join(expect("rules for what comes in", len(p.Spec.Ingress), 0), expect("addresses that pods reach by it", len(p.Spec.Egress[0].To), 1))
	})
	await(t, host.CoreV1().Namespaces().Get, ns, func(n *corev1.Namespace) error {
		return errors.Join(expect("Pod Security level", n.Labels["pod-security.kubernetes.io/enforce"], "baseline"), expect("the admin's label", n.Labels["cost-center"], "4711"))
	})
	await(t, bindings.Get, "berth-syncer", func(again *rbacv1.RoleBinding) error {
		return expect("its role", again.RoleRef, binding.RoleRef)
	})
	eventually(t, func() error {
		policy, err := admission.ValidatingAdmissionPolicies().Get(t.Context(), "berth-space-pods", metav1.GetOptions{})
		if err == nil && policy.Spec.MatchConditions[0].Name == "never" {
			err = errors.New("the policy about pods is never evaluated")
		}
		_, gone := admission.ValidatingAdmissionPolicyBindings().Get(t.Context(), "berth-space-accounts", metav1.GetOptions{})
		return errors.Join(err, gone)
	})
	if log := b.log(t); !strings.Contains(log, "Restored objects that isolate a space") || !strings.Contains(log, "NetworkPolicy berth-egress in namespace berth-a was deleted") {
		t.Error("the log does not tell what was put back")
	}

	quota := must(host.CoreV1().ResourceQuotas(ns).Get(t.Context(), "berth", metav1.GetOptions{}))(t)
	if pods := quota.Spec.Hard[corev1.ResourcePods]; pods.Value() != 7 {
		t.Errorf("the admin's quota of 7 pods is %s", pods.String())
	}
	_ = must(policies.Get(t.Context(), "monitoring", metav1.GetOptions{}))(t)
	if state, _ := b.stateOf(t, "a"); state != "Asleep" {
		t.Errorf("the space is %s: it was woken", state)
	}
}

// S21: a host namespace that somebody deletes is made again, isolation first, and the space runs there again.
func TestADeletedHostNamespaceOfASpaceIsMadeAgain(t *testing.T) {
	t.Parallel()
	b := start(t, "--space", "a")
	host, a := b.host(t), b.space(t, "a")
	const ns = "berth-a"
	a.kubectl(t, "create", "deployment", "web", "--image=nginx")
	before := a.awaitPods(t, "default", "app=web", 1)[0]
	old := must(host.CoreV1().Namespaces().Get(t.Context(), ns, metav1.GetOptions{}))(t)

	host.kubectl(t, "delete", "namespace", ns, "--wait=false")
	await(t, host.CoreV1().Namespaces().Get, ns, func(n *corev1.Namespace) error {
		if n.UID == old.UID {
			return fmt.Errorf("the namespace is the old one: %v", n.Status.Conditions)
		}
		return expect("Pod Security level", n.Labels["pod-security.kubernetes.io/enforce"], "baseline")
	})
	for _, name := range []string{"berth", "berth-ingress", "berth-egress"} {
		await(t, host.NetworkingV1().NetworkPolicies(ns).Get, name, there)
	}
	eventually(t, func() error {
		pods, err := a.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{LabelSelector: "app=web"})
		if err != nil {
			return err
		}
		for _, pod := range pods.Items {
			if pod.UID != before.UID && pod.Status.Phase == corev1.PodRunning {
				return nil
			}
		}
		return errors.New("no pod of the deployment runs again")
	})
	a.run(t, "default", newPod("later"))
	awaitReady(t, host, "a", "True Running")
}
