// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"strings"
	"testing"

	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// S8: Jobs, also a CronJob's.
func TestAJobCompletes(t *testing.T) {
	t.Parallel()
	b := sharedBerth(t)
	demo := b.demo(t)
	ns := demo.namespace(t, "jobs")
	demo.kubectl(t, "create", "job", "once", "--image=busybox", "-n", ns)
	demo.kubectl(t, "create", "cronjob", "yearly", "--image=busybox", "--schedule=0 0 1 1 *", "-n", ns)
	demo.kubectl(t, "create", "job", "now", "--from=cronjob/yearly", "-n", ns)
	demo.kubectl(t, "wait", "--for=condition=Complete", "job/once", "job/now", "-n", ns, "--timeout=90s")
	out := demo.kubectl(t, "get", "pods", "-n", ns, "--no-headers")
	if strings.Count(out, "Completed") != 2 {
		t.Errorf("kubectl get pods shows:\n%s", out)
	}
}

// S8: a roll-out and back.
func TestADeploymentRollsOutAndBack(t *testing.T) {
	t.Parallel()
	b := sharedBerth(t)
	demo, host := b.demo(t), b.host(t)
	ns := demo.namespace(t, "rollout")
	selector := labelNamespace + "=" + ns
	demo.kubectl(t, "create", "deployment", "web", "--image=nginx:1", "--replicas=3", "-n", ns)
	for _, step := range []struct{ image, command string }{
		{"nginx:1", ""}, {"nginx:2", "set image deployment/web nginx=nginx:2"}, {"nginx:1", "rollout undo deployment/web"},
	} {
		if step.command != "" {
			demo.kubectl(t, append(strings.Fields(step.command), "-n", ns)...)
		}
		demo.kubectl(t, "rollout", "status", "deployment/web", "-n", ns, "--timeout=90s")
		demo.awaitPods(t, ns, "app=web", 3)
		for _, pod := range host.awaitPods(t, hostNamespace, selector, 3) {
			if got := pod.Spec.Containers[0].Image; got != step.image {
				t.Errorf("after %q the host runs %s, want %s", step.command, got, step.image)
			}
		}
	}
}

// S8.
func TestAnAutoscalerAndADisruptionBudgetWork(t *testing.T) {
	t.Parallel()
	b := sharedBerth(t)
	demo := b.demo(t)
	ns := demo.namespace(t, "scaling")
	demo.kubectl(t, "create", "deployment", "web", "--image=nginx", "--replicas=1", "-n", ns)
	demo.kubectl(t, "autoscale", "deployment/web", "--min=2", "--max=3", "--cpu=50%", "-n", ns)
	demo.kubectl(t, "create", "poddisruptionbudget", "web", "--selector=app=web", "--min-available=2", "-n", ns)
	pods := demo.awaitPods(t, ns, "app=web", 2)
	await(t, demo.PolicyV1().PodDisruptionBudgets(ns).Get, "web", func(b *policyv1.PodDisruptionBudget) error {
		return expect("budget", fmt.Sprint(b.Status.CurrentHealthy, b.Status.DisruptionsAllowed, b.Status.ObservedGeneration), "2 0 1")
	})
	eviction := &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: pods[0].Name, Namespace: ns}}
	if err := demo.PolicyV1().Evictions(ns).Evict(t.Context(), eviction); !apierrors.IsTooManyRequests(err) {
		t.Errorf("an eviction against the budget gets %v", err)
	}
}

// S8, T2: what kubectl does with schemas and field owners.
func TestKubectlAppliesExplainsAndDiffs(t *testing.T) {
	t.Parallel()
	b := sharedBerth(t)
	demo := b.demo(t)
	ns := demo.namespace(t, "kubectl")
	const before = "{apiVersion: v1, kind: ConfigMap, metadata: {name: c}, data: {a: '1', b: '2'}}"
	const after = "{apiVersion: v1, kind: ConfigMap, metadata: {name: c}, data: {a: '1', c: '3'}}"
	demo.apply(t, before, "-n", ns)
	// What others wrote stays, what is left out goes.
	demo.kubectl(t, "patch", "configmap", "c", "--type=merge", "-p", `{"data":{"theirs":"x"}}`, "-n", ns)
	demo.apply(t, after, "-n", ns)
	if got := demo.kubectl(t, "get", "configmap", "c", "-n", ns, "-o", "jsonpath={.data}"); got != `{"a":"1","c":"3","theirs":"x"}` {
		t.Errorf("after a three-way apply the config map holds %s", got)
	}
	demo.apply(t, after, "-n", ns, "--server-side", "--field-manager=one", "--force-conflicts")
	out, err := demo.tryKubectl(t, strings.Replace(after, "'3'", "'4'", 1), "apply", "-n", ns, "--server-side", "--field-manager=two", "-f", "-")
	if err == nil || !strings.Contains(out, "conflict") {
		t.Errorf("server-side apply of another's field says: %s", out)
	}
	if out := demo.kubectl(t, "explain", "deployment.spec.strategy"); !strings.Contains(out, "RollingUpdate") {
		t.Errorf("kubectl explain says: %s", out)
	}
	out, err = demo.tryKubectl(t, "{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {containers: [{name: c, image: i, frob: x}]}}", "create", "-n", ns, "-f", "-")
	if err == nil || !strings.Contains(out, "frob") {
		t.Errorf("an unknown field passes: %s", out)
	}
	demo.kubectl(t, "version")
}

// C1, T2: a CRD of the tenant's, with its schema and its status.
func TestATenantsOwnResourcesWork(t *testing.T) {
	t.Parallel()
	b := sharedBerth(t)
	demo := b.demo(t)
	ns := demo.namespace(t, "own-resources")
	demo.apply(t, strings.ReplaceAll(crd, "FIELD", "sails"))
	demo.awaitCRD(t, "ships.example.com")
	const ship = "{apiVersion: example.com/v1, kind: Ship, metadata: {name: argo}, spec: {sails: white}}"
	eventually(t, func() error {
		_, err := demo.tryKubectl(t, ship, "apply", "-n", ns, "-f", "-")
		return err
	})
	if out := demo.kubectl(t, "get", "ships", "-n", ns, "-o", "jsonpath={.items[*].spec.sails}"); out != "white" {
		t.Errorf("the ship's sails are %q", out)
	}
	eventually(t, func() error { // OpenAPI is put together a moment later
		out, err := demo.tryKubectl(t, "", "explain", "ship.spec")
		if err == nil && !strings.Contains(out, "sails") {
			return fmt.Errorf("kubectl explain says: %s", out)
		}
		return err
	})
	demo.kubectl(t, "delete", "crd", "ships.example.com", "--wait")
	if _, err := b.host(t).tryKubectl(t, "", "get", "crd", "ships.example.com"); err == nil {
		t.Error("the CRD is on the host")
	}
}
