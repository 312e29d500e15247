// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"strings"
	"testing"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The controllers of a space, on containers that are real.
const (
	ticking = `
apiVersion: batch/v1
kind: CronJob
metadata: {name: ticking}
spec:
  schedule: "* * * * *"
  jobTemplate:
    spec:
      template:
        spec: {restartPolicy: Never, containers: [{name: c, image: %s, args: [write, /tmp/said, tick, --, cat, /tmp/said]}]}
`
	scaling = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: scaling}
spec:
  selector: {matchLabels: {app: scaling}}
  template:
    metadata: {labels: {app: scaling}}
    spec:
      terminationGracePeriodSeconds: 0
      containers: [{name: c, image: %s, args: [sleep], resources: {requests: {memory: 1Mi, cpu: 10m}}}]
---
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: scaling}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: scaling}
  minReplicas: 1
  maxReplicas: 2
  metrics: [{type: Resource, resource: {name: memory, target: {type: Utilization, averageUtilization: 50}}}]
`
	guarded = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: guarded}
spec:
  replicas: 2
  selector: {matchLabels: {app: guarded}}
  template:
    metadata: {labels: {app: guarded}}
    spec: {terminationGracePeriodSeconds: 0, containers: [{name: c, image: %s, args: [sleep]}]}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: guarded}
spec: {minAvailable: 2, selector: {matchLabels: {app: guarded}}}
`
	closed = `
apiVersion: v1
kind: Pod
metadata: {name: closed, labels: {app: closed}}
spec:
  terminationGracePeriodSeconds: 0
  containers: [{name: c, image: %s, args: [serve, ":8080"], readinessProbe: {periodSeconds: 1, httpGet: {port: 8080}}}]
---
apiVersion: v1
kind: Service
metadata: {name: closed}
spec: {selector: {app: closed}, ports: [{port: 80, targetPort: 8080}]}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: closed}
spec:
  podSelector: {matchLabels: {app: closed}}
  ingress: [{from: [{podSelector: {matchLabels: {may: enter}}}]}]
`
)

// controllers has those of a space work: a schedule, a budget, and what pods use.
// All are given their work at first, as some take a minute to begin.
func (k *kindTest) controllers(t *testing.T) {
	for _, manifest := range []string{ticking, scaling, guarded} {
		k.a.apply(t, fmt.Sprintf(manifest, k.tool))
	}
	t.Run("a disruption budget keeps pods from being evicted", func(t *testing.T) {
		k.a.awaitPods(t, "default", "app=guarded", 2)
		eventually(t, func() error {
			out, err := k.a.tryKubectl(t, "", "get", "pdb", "guarded", "-o", "jsonpath={.status.currentHealthy} {.status.disruptionsAllowed}")
			if err != nil {
				return fmt.Errorf("%w: %s", err, out)
			}
			return expect("healthy pods and disruptions allowed", out, "2 0")
		})
		pod := k.a.awaitPods(t, "default", "app=guarded", 2)[0].Name
		if out, err := k.evict(t, pod); err == nil || !strings.Contains(out, "would violate the pod's disruption budget") {
			t.Errorf("evicting a pod that the budget needs: %v: %s", err, out)
		}
		k.a.kubectl(t, "scale", "deployment/guarded", "--replicas=3")
		k.a.awaitPods(t, "default", "app=guarded", 3)
		eventually(t, func() error {
			out, err := k.evict(t, pod)
			if err != nil {
				return fmt.Errorf("evict one that it does not need: %w: %s", err, out)
			}
			return nil
		})
	})
	t.Run("an autoscaler acts on what pods use", func(t *testing.T) {
		await(t, k.a.AutoscalingV2().HorizontalPodAutoscalers("default").Get, "scaling", func(a *autoscalingv2.HorizontalPodAutoscaler) error {
			if a.Status.CurrentReplicas != 2 {
				return fmt.Errorf("it has %d replicas: %+v", a.Status.CurrentReplicas, a.Status.Conditions)
			}
			return nil
		})
		k.a.awaitPods(t, "default", "app=scaling", 2)
	})
	t.Run("a cron job's job runs and ends", func(t *testing.T) {
		await(t, k.a.BatchV1().CronJobs("default").Get, "ticking", func(c *batchv1.CronJob) error {
			if c.Status.LastSuccessfulTime == nil {
				return fmt.Errorf("no run of it was a success: %+v", c.Status)
			}
			return nil
		})
		if out := k.a.kubectl(t, "logs", "-l", "batch.kubernetes.io/job-name", "--tail=1"); !strings.HasPrefix(out, "tick\n") {
			t.Errorf("the job says %q", out)
		}
	})
}

// evict asks for a pod of space a to be evicted, as kubectl drain does.
func (k *kindTest) evict(t *testing.T, pod string) (string, error) {
	t.Helper()
	body := fmt.Sprintf(`{"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": %q, "namespace": "default"}}`, pod)
	return k.a.tryKubectl(t, body, "create", "--raw", "/api/v1/namespaces/default/pods/"+pod+"/eviction", "-f", "-")
}

// policies: a tenant's network policy holds among its own pods (S1).
func (k *kindTest) policies(t *testing.T) {
	k.a.apply(t, fmt.Sprintf(closed, k.tool))
	k.a.awaitRunning(t, "default", "closed")
	for _, name := range []string{"invited", "uninvited"} {
		template := k.runs(name, "sleep")
		if name == "invited" {
			template.Labels["may"] = "enter"
		}
		k.a.run(t, "default", podOf(name, template))
	}
	ask := func(from string) (string, error) {
		return k.a.tryKubectl(t, "", "exec", from, "--", "/tool", "wget", "http://closed")
	}
	opens := func(from string) {
		eventually(t, func() error { // a policy reaches the nodes in its own time
			out, err := ask(from)
			if err != nil || !strings.HasPrefix(out, "closed serves ") {
				return fmt.Errorf("%s asks: %w: %s", from, err, out)
			}
			return nil
		})
	}
	opens("invited")
	if out, err := ask("uninvited"); err == nil || !strings.Contains(out, "deadline exceeded") {
		t.Errorf("a pod that the policy does not name asks: %v: %s", err, out)
	}
	if err := k.a.NetworkingV1().NetworkPolicies("default").Delete(t.Context(), "closed", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	opens("uninvited")
}
