// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// follows has nodes close, open, and change hands.
func (d *daemons) follows(t *testing.T) {
	node3 := d.agentOn(t, "host-node-3")
	// A node that is cordoned keeps its pod, and gets none.
	d.host.kubectl(t, "cordon", "host-node-3")
	await(t, d.demo.CoreV1().Nodes().Get, node3.Spec.NodeName, func(n *corev1.Node) error { return expect("taints of the virtual node", len(n.Spec.Taints), 1) })
	if now := d.agentOn(t, "host-node-3"); now.UID != node3.UID {
		t.Error("a node was cordoned, and its pod is another one")
	}
	d.demo.kubectl(t, "delete", "pod", node3.Name)
	await(t, d.demo.AppsV1().DaemonSets("default").Get, "agent", func(s *appsv1.DaemonSet) error {
		return expect("pods with the node cordoned", s.Status.CurrentNumberScheduled, 2)
	})
	d.awaitNodes(t, d.demo, 3)
	d.host.kubectl(t, "uncordon", "host-node-3")
	d.awaitOn(t, "demo", "host-node-1", "host-node-2", "host-node-3")

	// One that is set apart stays while the space's pods run there.
	d.host.kubectl(t, "taint", "node", "host-node-3", "gpu=secret:NoSchedule")
	await(t, d.demo.CoreV1().Nodes().Get, node3.Spec.NodeName, func(n *corev1.Node) error { return expect("taints of the virtual node", len(n.Spec.Taints), 1) })
	d.demo.kubectl(t, "delete", "pod", d.agentOn(t, "host-node-3").Name)
	d.awaitNodes(t, d.demo, 2)
	d.awaitOn(t, "demo", "host-node-1", "host-node-2")
	d.host.kubectl(t, "taint", "node", "host-node-3", "gpu-")
	d.awaitOn(t, "demo", "host-node-1", "host-node-2", "host-node-3")

	// One that is no longer the space's loses its agents.
	d.host.kubectl(t, "label", "node", "host-node-2", "pool-")
	d.awaitOn(t, "own", "host-node-1")
	d.awaitNodes(t, d.own, 1)
	d.host.kubectl(t, "label", "node", "host-node-2", "pool=own")
	d.awaitOn(t, "own", "host-node-1", "host-node-2")
}

// comeAndGo has a node come as its kubelet has it, which says from the first that
// it is not ready: from one that says nothing, the host soon takes the taint.
func (d *daemons) comeAndGo(t *testing.T) {
	nodes := d.host.CoreV1().Nodes()
	here := []string{"host-node-1", "host-node-2", "host-node-3"}
	before := d.awaitNodes(t, d.demo, len(here))
	made := must(nodes.Create(t.Context(), &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "host-node-new"},
		Status: corev1.NodeStatus{
			Allocatable: must(nodes.Get(t.Context(), here[0], metav1.GetOptions{}))(t).Status.Allocatable,
			Conditions:  []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionFalse}},
		},
	}, metav1.CreateOptions{}))(t)
	var stand string
	for _, name := range d.awaitNodes(t, d.demo, len(here)+1) {
		if !slices.Contains(before, name) {
			stand = name
		}
	}
	if taints := must(d.demo.CoreV1().Nodes().Get(t.Context(), stand, metav1.GetOptions{}))(t).Spec.Taints; len(taints) != 1 {
		t.Errorf("the virtual node of a node that is not ready has the taints %v", taints)
	}
	d.awaitOn(t, "demo", here...)

	// Once it is ready it gets a pod, which nobody starts there. That goes with it.
	must(nodes.Patch(t.Context(), made.Name, types.StrategicMergePatchType,
		[]byte(`{"status":{"conditions":[{"type":"Ready","status":"True"}]}}`), metav1.PatchOptions{}, "status"))(t)
	eventually(t, func() error {
		pods, err := d.host.CoreV1().Pods("berth-demo").List(t.Context(), metav1.ListOptions{
			LabelSelector: "app=agent", FieldSelector: "spec.nodeName=" + made.Name,
		})
		if err != nil {
			return err
		}
		return expect("agents on the node that has come", len(pods.Items), 1)
	})
	if err := nodes.Delete(t.Context(), made.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	d.awaitNodes(t, d.demo, len(here))
	d.awaitOn(t, "demo", here...)
}

// agentOn is the space's pod on a node of the host's.
func (d *daemons) agentOn(t *testing.T, node string) (found corev1.Pod) {
	t.Helper()
	for _, p := range d.demo.awaitPods(t, "default", "app=agent", 3) {
		if h := must(d.host.CoreV1().Pods("berth-demo").Get(t.Context(), hostName("default", p.Name), metav1.GetOptions{}))(t); h.Spec.NodeName == node {
			found = p
		}
	}
	if found.Name == "" {
		t.Fatalf("there is no agent on %s", node)
	}
	return found
}
