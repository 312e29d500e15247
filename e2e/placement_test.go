// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// M2: what an admin says of nodes holds for all spaces or for one; a mistake is
// told with what is possible.
func TestPodsRunOnTheNodesOfTheirSpace(t *testing.T) {
	t.Parallel()
	for nodes, want := range map[string]string{
		"selector: {a b: c}":                      `spaceDefaults.nodes.selector: Invalid value: "a b"`,
		"selector: {pool: a b}":                   `spaceDefaults.nodes.selector: Invalid value: "a b"`,
		"allowedLabels: [kubernetes.io/hostname]": "the names of nodes",
		"allowedLabels: [kubernetes.io/ arch]":    "spaceDefaults.nodes.allowedLabels[0]",
	} {
		_, out, code := runBerth(t, "up", "--data-dir", t.TempDir(), configured(t, "spaceDefaults: {nodes: {"+nodes+"}}"))
		if code == 0 || !strings.Contains(out, want) {
			t.Errorf("%s: ended with %d, and %q does not say %q", nodes, code, out, want)
		}
	}
	b := start(t, configured(t, `
spaceDefaults: {nodes: {selector: {pool: tenants}}}
spaces:
- metadata: {name: gpus}
  spec: {isolation: Dedicated, nodes: {selector: {pool: gpus, disk: ssd}}}
- metadata: {name: demo}
  spec: {nodes: {allowedLabels: [disk]}}`))
	demo, gpus, host := b.demo(t), b.space(t, "gpus"), b.host(t)
	for node, labels := range map[string][]string{
		"host-node-1": {"pool=system"}, "host-node-2": {"pool=tenants", "disk=ssd"}, "host-node-3": {"pool=gpus", "disk=ssd"},
	} {
		host.kubectl(t, append([]string{"label", "node", node}, labels...)...)
	}
	on := func(p *corev1.Pod, space, node string) {
		t.Helper()
		h := must(host.CoreV1().Pods("berth-"+space).Get(t.Context(), strings.Replace(hostName("default", p.Name), "demo--", space+"--", 1), metav1.GetOptions{}))(t)
		if h.Spec.NodeName != node {
			t.Errorf("pod %s of %s runs on %s, want it on %s", p.Name, space, h.Spec.NodeName, node)
		}
	}
	on(demo.run(t, "default", newPod("anywhere")), "demo", "host-node-2")
	on(demo.run(t, "default", newPod("fast", func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"disk": "ssd"} })), "demo", "host-node-2")
	on(gpus.run(t, "default", newPod("anywhere")), "gpus", "host-node-3")

	for reason, try := range map[string]struct {
		c      *cluster
		labels map[string]string
	}{
		"of the admin's":                   {demo, map[string]string{"pool": "gpus"}},
		"that is for another space":        {gpus, map[string]string{"disk": "ssd"}},
		"that tells where other nodes are": {demo, map[string]string{corev1.LabelTopologyZone: "a"}},
	} {
		_, err := try.c.CoreV1().Pods("default").Create(t.Context(), newPod("probe", func(p *corev1.Pod) { p.Spec.NodeSelector = try.labels }), metav1.CreateOptions{})
		refused(t, "a label "+reason, err, "spec.nodeSelector")
	}
}

// M1: a DaemonSet is refused when it is made, with what to use instead, rather
// than taken and never run.
func TestDaemonSetsAreRefused(t *testing.T) {
	t.Parallel()
	demo := sharedBerth(t).demo(t)
	manifest := "{apiVersion: apps/v1, kind: DaemonSet, metadata: {name: agent}, spec: {selector: {matchLabels: {a: b}}, " +
		"template: {metadata: {labels: {a: b}}, spec: {containers: [{name: c, image: i}]}}}}"
	for _, as := range [][]string{nil, {"--as", "system:apiserver", "--as-group", "system:masters"}} {
		out, err := demo.tryKubectl(t, manifest, append([]string{"create", "-f", "-"}, as...)...)
		if err == nil || !strings.Contains(out, "use a Deployment, with a topologySpreadConstraint") {
			t.Errorf("kubectl create a DaemonSet: %v:\n%s", err, out)
		}
	}
}
