// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const showsVirtualNodes = "spaceDefaults: {sync: [{resource: nodes, value: standins}]}"

// N1, N2, M1: one test, as its parts look at one space that is made busy once.
func TestVirtualNodesTellNoMoreThanPodsDo(t *testing.T) {
	t.Parallel()
	b := start(t, configured(t, showsVirtualNodes))
	demo := b.demo(t)
	if out := demo.kubectl(t, "get", "nodes"); !strings.Contains(out, "No resources found") {
		t.Errorf("without a pod, kubectl get nodes shows:\n%s", out)
	}
	makeBusy(t, demo)
	if count := len(demo.awaitVirtualNodes(t)); count < 2 {
		t.Fatalf("pods are on %d nodes, want them on several", count)
	}

	t.Run("read like nodes, all alike", func(t *testing.T) { checkVirtualNodes(t, demo) })
	t.Run("hide the host", func(t *testing.T) { checkHidden(t, b, "demo") })
	for name, as := range map[string]*cluster{
		"admin":          demo,
		"the API server": demo.as(t, "system:apiserver", "system:masters"),
		"a node":         demo.as(t, "system:node:node-0123456789ab", "system:masters", "system:nodes"),
		"a controller":   demo.as(t, "system:serviceaccount:kube-system:node-controller", "system:masters"),
		"the syncer":     demo.as(t, "system:serviceaccount:berth-demo:berth-syncer", "system:masters"),
	} {
		t.Run("are not written as "+name, func(t *testing.T) { writeVirtualNodes(t, demo, as) })
	}
	t.Run("are drained of the space's pods, and not closed", func(t *testing.T) {
		name := demo.awaitVirtualNodes(t)[0]
		out, _ := demo.tryKubectl(t, "", "drain", name)
		if !strings.Contains(out, "To move a pod, delete it") || !strings.Contains(out, "evicted") {
			t.Errorf("kubectl drain prints:\n%s", out)
		}
		demo.awaitPods(t, "default", "app=web", 6)
		demo.awaitVirtualNodes(t)
	})
	t.Run("are not kept from coming or going", func(t *testing.T) {
		demo.apply(t, hinder)
		demo.kubectl(t, "delete", "deployment", "apart")
		demo.kubectl(t, "scale", "deployment", "web", "--replicas=0")
		demo.kubectl(t, "delete", "pod", "db-0", "db-1")
		demo.awaitPods(t, "default", "app=db", 2)
		demo.kubectl(t, "scale", "deployment", "web", "--replicas=6")
		demo.awaitPods(t, "default", "app=web", 6)
		demo.awaitVirtualNodes(t)
	})
	t.Run("are there again after a crash and a sleep", func(t *testing.T) {
		before := demo.awaitVirtualNodes(t)
		b.crash(t)
		b.up(t, configured(t, showsVirtualNodes))
		demo := b.demo(t)
		if _, stderr, code := runBerth(t, "sleep", "demo", "--data-dir", b.dir); code != 0 {
			t.Fatalf("berth sleep ends with %d: %s", code, stderr)
		}
		if after := demo.awaitVirtualNodes(t); !slices.Equal(before, after) {
			t.Errorf("virtual nodes were %v and are %v", before, after)
		}
	})
	t.Run("go when they are disabled", func(t *testing.T) {
		b.stop(t, syscall.SIGTERM)
		b.up(t)
		demo := b.demo(t)
		eventually(t, func() error { return expect("virtual nodes", len(must(demo.nodeNames(t))(t)), 0) })
		b.stop(t, syscall.SIGTERM)
		b.up(t, configured(t, showsVirtualNodes))
		b.demo(t).awaitVirtualNodes(t)
	})
	t.Run("go with their pods, though finished ones stay", func(t *testing.T) {
		demo := b.demo(t)
		demo.kubectl(t, "create", "job", "finished", "--image=busybox")
		demo.kubectl(t, "wait", "--for=condition=Complete", "job/finished", "--timeout=90s")
		demo.kubectl(t, "delete", "deployment,statefulset", "--all")
		demo.kubectl(t, "delete", "pod", "-l", "app in (web,db)", "--ignore-not-found")
		if left := demo.awaitVirtualNodes(t); len(left) > 0 {
			t.Errorf("without a pod that runs there are %v", left)
		}
		if out := demo.kubectl(t, "get", "pods"); !strings.Contains(out, "Completed") {
			t.Errorf("no finished pod is there:\n%s", out)
		}
	})
}

// hinder has the tenant's admin refuse whatever is done to nodes.
const hinder = `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: hinder}
webhooks:
- name: hinder.example.com
  clientConfig: {service: {namespace: default, name: nobody}}
  rules: [{apiGroups: [""], apiVersions: ["*"], operations: ["*"], resources: ["nodes", "nodes/*"]}]
  failurePolicy: Fail
  sideEffects: None
  timeoutSeconds: 1
  admissionReviewVersions: [v1]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: hinder}
spec:
  failurePolicy: Fail
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: ["*"], operations: ["*"], resources: ["nodes"]}]}
  validations: [{expression: "false"}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: hinder}
spec: {policyName: hinder, validationActions: [Deny]}
`

func (c *cluster) nodeNames(t *testing.T) ([]string, error) {
	t.Helper()
	list, err := c.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	var names []string
	for _, n := range list.Items {
		names = append(names, n.Name)
	}
	return names, nil
}

// awaitVirtualNodes waits until the space's nodes are those that its pods run on,
// and returns their names.
func (c *cluster) awaitVirtualNodes(t *testing.T) (names []string) {
	t.Helper()
	eventually(t, func() (err error) {
		pods, err := c.CoreV1().Pods("").List(t.Context(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		on := map[string]bool{}
		for _, p := range pods.Items {
			if p.Spec.NodeName != "" && p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed {
				on[p.Spec.NodeName] = true
			}
		}
		if names, err = c.nodeNames(t); err != nil {
			return err
		}
		if want := slices.Sorted(maps.Keys(on)); !slices.Equal(names, want) {
			return fmt.Errorf("nodes are %v, pods run on %v", names, want)
		}
		return nil
	})
	return names
}

// checkVirtualNodes looks at them as a user does.
func checkVirtualNodes(t *testing.T, space *cluster) {
	nodes := must(space.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{}))(t).Items
	table, described := space.kubectl(t, "get", "nodes", "-o", "wide"), space.kubectl(t, "describe", "nodes")
	release := must(space.Discovery().ServerVersion())(t).GitVersion
	var first *corev1.Node
	for i := range nodes {
		n := &nodes[i]
		if !strings.Contains(table, n.Name+"   Ready") || !strings.Contains(table, release) {
			t.Errorf("%s is not Ready, of release %s, in\n%s", n.Name, release, table)
		}
		if n.Labels[corev1.LabelHostname] != n.Name || len(n.Status.Addresses) > 0 || len(n.Status.Images) > 0 {
			t.Errorf("%s has labels %v, addresses %v, %d images", n.Name, n.Labels, n.Status.Addresses, len(n.Status.Images))
		}
		// But for what is each's own, none tells more than another.
		n.ObjectMeta = metav1.ObjectMeta{Labels: n.Labels, Annotations: n.Annotations}
		n.Labels[corev1.LabelHostname] = ""
		n.Status.Conditions[0].LastHeartbeatTime, n.Status.Conditions[0].LastTransitionTime = metav1.Time{}, metav1.Time{}
		if first == nil {
			first = n
		}
		if diff := cmp.Diff(first, n); diff != "" {
			t.Errorf("two virtual nodes differ: %s", diff)
		}
	}
	if !strings.Contains(described, "web-") || strings.Contains(described, "(-") {
		t.Errorf("kubectl describe nodes lists no pods, or nonsense:\n%s", described)
	}
}

// writeVirtualNodes tries each way to write nodes, or to have some made by pods.
func writeVirtualNodes(t *testing.T, space, as *cluster) {
	before := must(space.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{}))(t).Items
	node, ctx, core := before[0], t.Context(), as.CoreV1()
	name, patched := node.Name, `{"metadata":{"labels":{"mine":"yes"}},"spec":{"unschedulable":true}}`
	changed := node.DeepCopy()
	changed.Labels["mine"], changed.ResourceVersion = "yes", ""
	applied := fmt.Sprintf(`{"apiVersion":"v1","kind":"Node","metadata":{"name":%q,"labels":{"mine":"yes"}}}`, "made-up")
	made := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "made-up"}}
	binding := &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: "no-claim"}, Target: corev1.ObjectReference{Kind: "Node", Name: "made-up"}}
	for what, try := range map[string]struct {
		says string
		do   func() error
	}{
		"create": {"belong to the host", func() error { return second(core.Nodes().Create(ctx, made, metav1.CreateOptions{})) }},
		"update": {"belong to the host", func() error { return second(core.Nodes().Update(ctx, changed, metav1.UpdateOptions{})) }},
		"its dry": {"belong to the host", func() error {
			return second(core.Nodes().Update(ctx, changed, metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}}))
		}},
		"patch": {"belong to the host", func() error {
			return second(core.Nodes().Patch(ctx, name, types.MergePatchType, []byte(patched), metav1.PatchOptions{}))
		}},
		"status": {"belong to the host", func() error {
			return second(core.Nodes().PatchStatus(ctx, name, []byte(`{"status":{"nodeInfo":{"machineID":"mine"}}}`)))
		}},
		"apply": {"belong to the host", func() error {
			return second(core.Nodes().Patch(ctx, "made-up", types.ApplyPatchType, []byte(applied), metav1.PatchOptions{FieldManager: "mine"}))
		}},
		"delete":     {"belong to the host", func() error { return core.Nodes().Delete(ctx, name, metav1.DeleteOptions{}) }},
		"delete all": {"belong to the host", func() error { return core.Nodes().DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}) }},
		"a pod": {"spec.nodeName", func() error {
			return second(core.Pods("default").Create(ctx, newPod("placed", func(p *corev1.Pod) { p.Spec.NodeName = "made-up" }), metav1.CreateOptions{}))
		}},
	} {
		refused(t, what, try.do(), try.says)
	}
	for path, resource := range map[string]string{
		"/api/v1/nodes/" + name + "/proxy/pods":            "nodes/proxy",
		"/api/v1/nodes/http:" + name + ":80/proxy/":        "nodes/proxy",
		"/api/v1/namespaces/default/pods/no-claim/binding": "pods/binding",
		"/api/v1/namespaces/default/bindings":              "bindings",
	} {
		unserved(t, path, core.RESTClient().Post().AbsPath(path).Body(binding).Do(ctx).Error(), resource)
	}
	// What changes nothing is no write: clients update the status of what they have just read.
	if _, err := core.Nodes().UpdateStatus(ctx, node.DeepCopy(), metav1.UpdateOptions{}); err != nil {
		t.Errorf("an update that changes nothing: %v", err)
	}
	if as == space {
		for _, args := range [][]string{{"cordon", name}, {"taint", "nodes", name, "a=b:NoExecute"}, {"label", "node", name, "a=b"}} {
			out, _ := space.tryKubectl(t, "", args...) // cordon ends well, whatever it is told
			if !strings.Contains(out, "To move a pod, delete it") {
				t.Errorf("kubectl %s does not say what to do:\n%s", strings.Join(args, " "), out)
			}
		}
	}
	after := must(space.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{}))(t).Items
	if diff := cmp.Diff(before, after); diff != "" {
		t.Errorf("nodes have changed: %s", diff)
	}
}
