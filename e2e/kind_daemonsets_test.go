// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// daemons has real kubelets run a DaemonSet's pods (M1): one on each node, also
// once it has rolled.
func (k *kindTest) daemons(t *testing.T) {
	template := k.runs("daemon", "sleep")
	sets := k.b.AppsV1().DaemonSets("default")
	must(sets.Create(t.Context(), &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Name: "daemon"},
		Spec:       appsv1.DaemonSetSpec{Selector: metav1.SetAsLabelSelector(template.Labels), Template: template},
	}, metav1.CreateOptions{}))(t)
	stands := map[string]bool{}
	onEach := func() map[types.UID]bool {
		t.Helper()
		k.b.kubectl(t, "rollout", "status", "daemonset/daemon", "--timeout=90s")
		used, found := map[string]bool{}, map[types.UID]bool{}
		for _, pod := range k.b.awaitPods(t, "default", "app=daemon", len(k.nodes)) {
			h := must(k.host.CoreV1().Pods(k.on(1)).Get(t.Context(), containerSpaces[1]+"--default--"+pod.Name, metav1.GetOptions{}))(t)
			used[h.Spec.NodeName], found[pod.UID] = true, true
			if !stands[pod.Spec.NodeName] {
				t.Errorf("pod %s runs on %s, which is no node of the space", pod.Name, pod.Spec.NodeName)
			}
		}
		if len(used) != len(k.nodes) {
			t.Errorf("daemons run on %v, want one on each of %d nodes", used, len(k.nodes))
		}
		return found
	}
	for _, name := range must(k.b.nodeNames(t))(t) {
		stands[name] = true
	}
	if len(stands) != len(k.nodes) {
		t.Fatalf("the space has the nodes %v, the host has %d", stands, len(k.nodes))
	}
	before := onEach()
	k.b.kubectl(t, "set", "env", "daemonset/daemon", "ROLLED=yes")
	for uid := range onEach() {
		if before[uid] {
			t.Error("a pod is the one from before the rollout")
		}
	}

	// A node of the host's that is closed, and whose pod goes, gets none until it is open.
	node := k.nodes[1].Name
	t.Cleanup(func() { _, _ = k.host.tryKubectl(t, "", "uncordon", node) })
	k.host.kubectl(t, "cordon", node)
	k.b.kubectl(t, "rollout", "restart", "daemonset/daemon")
	await(t, sets.Get, "daemon", func(s *appsv1.DaemonSet) error {
		return expect("nodes that are for the daemon", s.Status.DesiredNumberScheduled, int32(len(k.nodes)-1))
	})
	k.b.kubectl(t, "delete", "pod", "-l", "app=daemon")
	for _, pod := range k.b.awaitPods(t, "default", "app=daemon", len(k.nodes)-1) {
		h := must(k.host.CoreV1().Pods(k.on(1)).Get(t.Context(), containerSpaces[1]+"--default--"+pod.Name, metav1.GetOptions{}))(t)
		if h.Spec.NodeName == node {
			t.Errorf("pod %s runs on a node that is cordoned", pod.Name)
		}
	}
	k.host.kubectl(t, "uncordon", node)
	onEach()

	k.b.kubectl(t, "delete", "daemonset", "daemon")
	eventually(t, func() error {
		list, err := k.host.CoreV1().Pods(k.on(1)).List(t.Context(), metav1.ListOptions{LabelSelector: "app=daemon"})
		if err != nil {
			return err
		}
		return expect("daemons on the host", len(list.Items), 0)
	})
	for _, n := range must(k.b.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{}))(t).Items {
		if n.Labels[corev1.LabelHostname] != n.Name || len(n.Labels) != 3 || len(n.Status.Addresses) > 0 {
			t.Errorf("virtual node %s has labels %v and addresses %v", n.Name, n.Labels, n.Status.Addresses)
		}
	}
}
