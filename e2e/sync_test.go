// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const ingressManifest = `
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: shop, annotations: {nginx.ingress.kubernetes.io/server-snippet: evil}}
spec:
  ingressClassName: %s
  rules:
  - host: shop.kinds.example
    http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: web, port: {number: 80}}}}]}
`

// S1, S2, M4: what a tenant does with an ingress, by kubectl.
func TestAnIngressIsServedByAClassThatAdminsShow(t *testing.T) {
	t.Parallel()
	b := sharedBerth(t)
	demo, host := b.demo(t), b.host(t)
	ns := demo.namespace(t, "ingress")
	host.apply(t, `
apiVersion: networking.k8s.io/v1
kind: IngressClass
metadata: {name: e2e-public, labels: {berth.dev/show: "true"}}
spec: {controller: host.example/secret-name}
`)
	class := await(t, demo.NetworkingV1().IngressClasses().Get, "e2e-public", there)
	if strings.Contains(class.Spec.Controller, "secret-name") {
		t.Errorf("the class tells of the host's controller %s", class.Spec.Controller)
	}
	demo.apply(t, fmt.Sprintf(ingressManifest, "e2e-public"), "-n", ns)
	on := await(t, host.NetworkingV1().Ingresses(hostNamespace).Get, hostName(ns, "shop"), there)
	if len(on.Annotations) != 3 {
		t.Errorf("annotations went along: %v", on.Annotations)
	}
	host.kubectl(t, "patch", "ingress", on.Name, "-n", hostNamespace, "--subresource=status", "--type=merge",
		"-p", `{"status":{"loadBalancer":{"ingress":[{"ip":"203.0.113.9"}]}}}`)
	demo.kubectl(t, "wait", "ingress/shop", "-n", ns, "--for=jsonpath={.status.loadBalancer.ingress[0].ip}=203.0.113.9", "--timeout=90s")
	demo.kubectl(t, "delete", "ingress", "shop", "-n", ns)
	awaitGone(t, "host ingress", host.NetworkingV1().Ingresses(hostNamespace).Get, on.Name)
}

// S1, M4: a policy by kubectl takes away from the pods that it selects, and does
// not open the metadata service.
func TestANetworkPolicyHoldsWithinTheIsolation(t *testing.T) {
	t.Parallel()
	b := sharedBerth(t)
	demo, host := b.demo(t), b.host(t)
	ns := demo.namespace(t, "netpol")
	demo.run(t, ns, newPod("web", func(p *corev1.Pod) { p.Labels = map[string]string{"app": "web"} }))
	demo.apply(t, `
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: out}
spec:
  podSelector: {matchLabels: {app: web}}
  policyTypes: [Egress]
  egress: [{to: [{ipBlock: {cidr: 169.254.169.254/32}}]}, {to: [{ipBlock: {cidr: 0.0.0.0/0}}]}]
`, "-n", ns)
	policy := await(t, host.NetworkingV1().NetworkPolicies(hostNamespace).Get, hostName(ns, "out"), there)
	if len(policy.Spec.Egress) != 1 || !strings.Contains(strings.Join(policy.Spec.Egress[0].To[0].IPBlock.Except, " "), "169.254.0.0/16") {
		t.Errorf("the host lets through %v", policy.Spec.Egress)
	}
	await(t, host.CoreV1().Pods(hostNamespace).Get, hostName(ns, "web"), func(p *corev1.Pod) error {
		return expect("the label of policed pods", p.Labels["berth.dev/policed-egress"], "true")
	})
	eventually(t, func() error {
		if out := demo.kubectl(t, "get", "events", "-n", ns); !strings.Contains(out, "169.254.169.254/32 is closed") {
			return fmt.Errorf("events do not tell:\n%s", out)
		}
		return nil
	})
}

// S1: the configuration file says what is synced, and an error is told with what is possible.
func TestTheConfigurationSaysWhatIsSynced(t *testing.T) {
	t.Parallel()
	for option, want := range map[string]string{
		"{resource: deployments, value: all}": "networkpolicies", "{resource: nodes, value: some}": "off, standins or all", "{resource: configmaps, value: some}": "used, all or off",
	} {
		_, out, code := runBerth(t, "up", "--data-dir", t.TempDir(), configured(t, "spaceDefaults: {sync: ["+option+"]}"))
		if code == 0 || !strings.Contains(out, want) || !strings.Contains(out, "spaceDefaults.sync") {
			t.Errorf("%s: ended with %d, and %q does not say %q", option, code, out, want)
		}
	}
	b := start(t, configured(t, `spaceDefaults: {sync: [{resource: networkpolicies, value: "off"}, {resource: configmaps, value: all}]}`))
	demo, host := b.demo(t), b.host(t)
	if _, err := demo.NetworkingV1().NetworkPolicies("default").Create(t.Context(), &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: "off"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	demo.kubectl(t, "create", "configmap", "unused", "--from-literal=a=b")
	await(t, host.CoreV1().ConfigMaps(hostNamespace).Get, hostName("default", "unused"), there)
	policies := must(host.NetworkingV1().NetworkPolicies(hostNamespace).List(t.Context(), metav1.ListOptions{}))(t)
	for _, p := range policies.Items {
		if strings.HasPrefix(p.Name, "demo--") {
			t.Errorf("policy %s is on the host", p.Name)
		}
	}
}
