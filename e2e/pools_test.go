// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// hostPodOf returns the host's object of a pod in the namespace default of a space.
func hostPodOf(t *testing.T, host *cluster, space, name string) *corev1.Pod {
	t.Helper()
	return must(host.CoreV1().Pods("berth-"+space).Get(t.Context(), space+"--default--"+name, metav1.GetOptions{}))(t)
}

// requesting returns a pod of a priority class that takes so many CPUs of its node.
func requesting(name, class, cpu string) *corev1.Pod {
	return newPod(name, func(p *corev1.Pod) {
		take := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}
		p.Spec.PriorityClassName, p.Spec.Containers[0].Resources = class, corev1.ResourceRequirements{Requests: take, Limits: take}
	})
}

// M2, H1: the pods of a tenant run in its pool of nodes, and those of the tenants below it in a part of that. Neither a tenant nor a
// child that an admin describes wrongly leads out of it.
func TestPodsRunInThePoolOfTheirTenant(t *testing.T) {
	t.Parallel()
	b := start(t, "--operator")
	host := b.host(t)
	host.kubectl(t, "label", "node", "host-node-1", "pool=acme")
	host.kubectl(t, "taint", "node", "host-node-1", "tenant=acme:NoSchedule")
	host.kubectl(t, "label", "node", "host-node-2", "pool=shared")
	host.kubectl(t, "label", "node", "host-node-3", "pool=shared", "disk=ssd")
	awaitObject(t, host, "berthconfiguration/berth")
	host.kubectl(t, "patch", "berthconfiguration", "berth", "--type=merge", "--patch", `{"spec":{"tenantDefaults":{"nodes":{"selector":{"pool":"shared"},"allowedLabels":["disk"]}}}}`)
	host.apply(t, tenantObject("acme", "{nodes: {selector: {pool: acme}, tolerations: [{key: tenant, value: acme, effect: NoSchedule}]}}"))
	host.apply(t, tenantObject("solar", "{}"))
	host.apply(t, tenantObject("solar-dev", "{parent: solar, nodes: {selector: {disk: ssd}}}"))
	for _, name := range []string{"acme", "solar", "solar-dev"} {
		awaitTenant(t, host, name)
	}
	wide := host.kubectl(t, "get", "tenants", "-o", "wide")
	if !regexp.MustCompile(`NODE SELECTOR`).MatchString(wide) || !regexp.MustCompile(`(?m)^solar-dev .*disk=ssd,pool=shared`).MatchString(wide) {
		t.Errorf("kubectl get tenants -o wide:\n%s", wide)
	}
	on := func(space, name, want string) {
		t.Helper()
		if node := hostPodOf(t, host, space, name).Spec.NodeName; node != want {
			t.Errorf("pod %s of %s runs on %s, want it on %s", name, space, node, want)
		}
	}
	acme, solar, dev := b.space(t, "acme"), b.space(t, "solar"), b.space(t, "solar-dev")
	acme.run(t, "default", newPod("web"))
	on("acme", "web", "host-node-1")
	dev.run(t, "default", newPod("web"))
	on("solar-dev", "web", "host-node-3")
	solar.run(t, "default", newPod("fast", func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"disk": "ssd"} }))
	on("solar", "fast", "host-node-3")

	// A tenant asks for the nodes of another.
	_, err := solar.CoreV1().Pods("default").Create(t.Context(), newPod("spy", func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"pool": "acme"} }), metav1.CreateOptions{})
	refused(t, "a selector of another tenant's nodes", err, "spec.nodeSelector")
	solar.run(t, "default", newPod("tolerant", func(p *corev1.Pod) { p.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}} }))
	for _, toleration := range hostPodOf(t, host, "solar", "tolerant").Spec.Tolerations {
		if toleration.Key != corev1.TaintNodeNotReady && toleration.Key != corev1.TaintNodeUnreachable {
			t.Errorf("the host pod has the toleration %v", toleration)
		}
	}

	// A child leads out of the pool of its parent.
	host.kubectl(t, "patch", "tenant", "solar-dev", "--type=merge", "--patch", `{"spec":{"nodes":{"selector":{"pool":"acme"}}}}`)
	eventually(t, func() error {
		message := host.kubectl(t, "get", "tenant", "solar-dev", "-o", `jsonpath={.status.conditions[?(@.type=="Ready")].message}`)
		if !strings.Contains(message, `spec.nodes.selector[pool]: Invalid value: "acme": the pods of the tenant solar above run on nodes with pool=shared only`) {
			return fmt.Errorf("the message is %q", message)
		}
		return nil
	})
	eventually(t, func() error {
		return expect("the placement", host.kubectl(t, "get", "ns", "berth-solar-dev", "-o", `jsonpath={.metadata.annotations.berth\.dev/placement}`), "disk,disk=ssd,pool=shared")
	})
	dev.run(t, "default", newPod("later"))
	if node := hostPodOf(t, host, "solar-dev", "later").Spec.NodeName; node == "host-node-1" {
		t.Error("a pod of the child runs out of the pool of its parent")
	}
}

// M4: on shared nodes, a pod of a tenant preempts no pod of another, whatever priority the tenant gives it. On nodes of its own, a
// tenant's pod preempts the tenant's pods with a lower priority.
func TestHostileTenantsPreemptNobodyElse(t *testing.T) {
	t.Parallel()
	b := start(t, "--operator", "--nodes", "2", configured(t, `spaceDefaults: {sync: [{resource: ownpriorityclasses, value: "preempting:1000"}]}`))
	host := b.host(t)
	host.kubectl(t, "label", "node", "host-node-1", "pool=acme")
	host.kubectl(t, "label", "node", "host-node-2", "pool=shared")
	awaitObject(t, host, "berthconfiguration/berth")
	host.kubectl(t, "patch", "berthconfiguration", "berth", "--type=merge", "--patch", `{"spec":{"tenantDefaults":{"nodes":{"selector":{"pool":"shared"}},"quota":{"requests.cpu":"64","limits.cpu":"64"}}}}`)
	host.kubectl(t, "patch", "space", "demo", "--type=merge", "--patch", `{"spec":{"nodes":{"selector":{"pool":"shared"}}}}`) // a space of no tenant
	host.apply(t, tenantObject("acme", "{nodes: {selector: {pool: acme}}, priority: {preemption: OwnNodes}}"))
	host.apply(t, tenantObject("solar", "{}"))
	host.apply(t, tenantObject("lunar", "{}"))
	spaces := map[string]*cluster{}
	for _, name := range []string{"acme", "solar", "lunar"} {
		awaitTenant(t, host, name)
		spaces[name] = b.space(t, name)
		spaces[name].apply(t, `
{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: urgent}, value: 1000000}
---
{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: batch}, value: -100}
`)
	}
	victims := []*corev1.Pod{spaces["solar"].run(t, "default", requesting("usual", "", "15")), spaces["solar"].run(t, "default", requesting("batch", "batch", "15"))}
	must(spaces["lunar"].CoreV1().Pods("default").Create(t.Context(), requesting("urgent", "urgent", "20"), metav1.CreateOptions{}))(t)
	eventually(t, func() error {
		attacker, err := host.CoreV1().Pods("berth-lunar").Get(t.Context(), "lunar--default--urgent", metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, c := range attacker.Status.Conditions {
			if c.Type == corev1.PodScheduled && c.Reason == corev1.PodReasonUnschedulable && strings.Contains(c.Message, "preemptionPolicy=Never") {
				return nil
			}
		}
		return fmt.Errorf("the host's scheduler has not tried: %v", attacker.Status.Conditions)
	})
	for _, victim := range victims {
		if now := spaces["solar"].awaitRunning(t, "default", victim.Name); now.UID != victim.UID {
			t.Errorf("pod %s of another tenant was preempted", victim.Name)
		}
	}

	spaces["acme"].run(t, "default", requesting("batch", "batch", "20"))
	kept := spaces["acme"].run(t, "default", requesting("usual", "", "5"))
	spaces["acme"].run(t, "default", requesting("urgent", "urgent", "20"))
	if node := hostPodOf(t, host, "acme", "urgent").Spec.NodeName; node != "host-node-1" {
		t.Errorf("it runs on %s", node)
	}
	eventually(t, func() error {
		if out, err := spaces["acme"].tryKubectl(t, "", "get", "pod", "batch"); err == nil {
			return errors.New(out)
		}
		return nil
	})
	if now := spaces["acme"].awaitRunning(t, "default", "usual"); now.UID != kept.UID {
		t.Error("a pod with a higher priority was preempted, too")
	}
}
