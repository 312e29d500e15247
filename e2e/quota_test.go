// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"regexp"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Q3, Q1, US: the default quota of 200 pods.
func TestTheHostsQuotaStopsADeploymentAndLeavesTheRestUnharmed(t *testing.T) {
	t.Parallel()
	b := start(t)
	demo, host := b.demo(t), b.host(t)
	demo.kubectl(t, "create", "deployment", "calm", "--image=nginx", "--replicas=3")
	calm := uids(demo.awaitPods(t, "default", "app=calm", 3))
	hostCalm := uids(host.awaitPods(t, hostNamespace, "app=calm", 3))

	demo.kubectl(t, "create", "deployment", "greedy", "--image=nginx")
	demo.kubectl(t, "scale", "deployment/greedy", "--replicas=500")

	const limit = 200
	eventually(t, func() error {
		running := 0
		list, err := host.CoreV1().Pods(hostNamespace).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		if len(list.Items) > limit {
			t.Fatalf("the host holds %d pods of the space, at most %d are allowed", len(list.Items), limit)
		}
		for i := range list.Items {
			if isRunning(&list.Items[i]) {
				running++
			}
		}
		return expect("number of pods that run on the host", running, limit)
	})
	checkReason(t, demo)

	if got := uids(demo.awaitPods(t, "default", "app=calm", 3)); !same(got, calm) {
		t.Errorf("the other deployment's pods were %v and are %v", calm, got)
	}

	demo.kubectl(t, "scale", "deployment/greedy", "--replicas=5")
	demo.kubectl(t, "rollout", "status", "deployment/greedy", "--timeout=90s")
	demo.awaitPods(t, "default", "app=greedy", 5)
	host.awaitPods(t, hostNamespace, "", 3+5)
	if got := uids(host.awaitPods(t, hostNamespace, "app=calm", 3)); !same(got, hostCalm) {
		t.Errorf("the other deployment's host pods were %v and are %v", hostCalm, got)
	}
	eventually(t, func() error { return checkSynced(t, demo, host, "demo", withoutReservations) })
	// The quota allows more again.
	demo.run(t, "default", newPod("late"))
}

// checkReason looks for the pods that wait, and what they say of it.
func checkReason(t *testing.T, demo *cluster) {
	t.Helper()
	said := regexp.MustCompile(`exceeded quota: \S+, requested: (\S+,)*pods=1(,\S+)*, used: (\S+,)*pods=200(,\S+)*, limited: (\S+,)*pods=200`)
	eventually(t, func() error {
		pods, err := demo.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{LabelSelector: "app=greedy"})
		if err != nil {
			return err
		}
		events, err := demo.CoreV1().Events("default").List(t.Context(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		reasons := map[types.UID]string{}
		for _, e := range events.Items {
			if e.Reason == "HostQuotaExceeded" && e.Type == corev1.EventTypeWarning {
				reasons[e.InvolvedObject.UID] = e.Message
			}
		}
		for _, pod := range pods.Items {
			if pod.Status.Phase != corev1.PodPending || pod.Spec.NodeName != "" {
				continue
			}
			if !said.MatchString(reasons[pod.UID]) {
				return fmt.Errorf("pending pod %s has the reason %q, want one that matches %s", pod.Name, reasons[pod.UID], said)
			}
			for _, c := range pod.Status.Conditions {
				if c.Type == corev1.PodScheduled && !said.MatchString(c.Message) {
					return fmt.Errorf("condition of pending pod %s says %q, want what matches %s", pod.Name, c.Message, said)
				}
			}
		}
		return nil
	})
}

func uids(pods []corev1.Pod) map[types.UID]bool {
	out := map[types.UID]bool{}
	for _, p := range pods {
		out[p.UID] = true
	}
	return out
}

func same(a, b map[types.UID]bool) bool {
	if len(a) != len(b) {
		return false
	}
	for uid := range a {
		if !b[uid] {
			return false
		}
	}
	return true
}
