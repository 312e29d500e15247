// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"regexp"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// US, S3, N2.
func TestADeploymentOfASpaceRunsOnTheSharedHost(t *testing.T) {
	t.Parallel()
	b := sharedBerth(t)
	demo, host := b.demo(t), b.host(t)

	demo.kubectl(t, "create", "deployment", "web", "--image=nginx", "--replicas=3")
	demo.kubectl(t, "rollout", "status", "deployment/web", "--timeout=90s")

	lines := strings.Split(strings.TrimSpace(demo.kubectl(t, "get", "pods", "-l", "app=web", "-o", "wide", "--no-headers")), "\n")
	if len(lines) != 3 {
		t.Fatalf("kubectl get pods shows %d pods, want 3:\n%s", len(lines), strings.Join(lines, "\n"))
	}
	alias := regexp.MustCompile(`^node-[0-9a-f]{12}$`)
	for _, line := range lines {
		columns := strings.Fields(line)
		if status, node := columns[2], columns[6]; status != "Running" || !alias.MatchString(node) {
			t.Errorf("pod is %s on node %q, want Running on an alias: %s", status, node, line)
		}
	}

	hostNodes := map[string]bool{}
	for _, n := range must(host.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{}))(t).Items {
		hostNodes[n.Name] = true
	}
	for _, v := range must(demo.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{LabelSelector: "app=web"}))(t).Items {
		if !strings.HasPrefix(v.Name, "web-") {
			t.Errorf("pod is called %s, want web-…", v.Name)
		}
		h := must(host.CoreV1().Pods(hostNamespace).Get(t.Context(), hostName("default", v.Name), metav1.GetOptions{}))(t)
		if got, want := identityOf(h), (identity{"demo", "default", v.Name, v.UID}); got != want {
			t.Errorf("host pod %s records %v, want %v", h.Name, got, want)
		}
		if h.Labels["app"] != "web" || h.Labels[labelNamespace] != "default" {
			t.Errorf("labels of host pod %s are %v, want the tenant's app=web and its namespace", h.Name, h.Labels)
		}
		if !hostNodes[h.Spec.NodeName] {
			t.Errorf("host pod %s is on %q, want one of the nodes %v", h.Name, h.Spec.NodeName, hostNodes)
		}
		if v.Status.PodIP == "" || v.Status.PodIP != h.Status.PodIP {
			t.Errorf("pod %s has address %q, its host pod %q", v.Name, v.Status.PodIP, h.Status.PodIP)
		}
		if len(h.OwnerReferences) > 0 || len(h.Finalizers) > 0 {
			t.Errorf("host pod %s has owners %v and finalizers %v, want none", h.Name, h.OwnerReferences, h.Finalizers)
		}
	}

	demo.kubectl(t, "delete", "deployment", "web", "--wait")
	host.awaitPods(t, hostNamespace, "app=web", 0)
}
