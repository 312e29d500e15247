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

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const agent = `
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: agent}
spec:
  selector: {matchLabels: {app: agent}}
  template:
    metadata: {labels: {app: agent}}
    spec:
      terminationGracePeriodSeconds: 0
      containers: [{name: c, image: "agent:1"}]
`

// M1, N1, N2, M2: where an admin has them translated, DaemonSets run a pod on each
// node that is for the space, and on no other. One test, as its parts look at what
// becomes of the same nodes.
func TestDaemonSetsRunOnTheNodesOfTheirSpace(t *testing.T) {
	t.Parallel()
	_, out, code := runBerth(t, "up", "--data-dir", t.TempDir(), configured(t, "spaceDefaults: {sync: [{resource: daemonsets, value: translated}]}"))
	if code == 0 || !strings.Contains(out, "nodes=all") {
		t.Errorf("without nodes, berth up ended with %d, and %q does not say what to do", code, out)
	}
	b := start(t, "--space", "demo", configured(t, `
spaceDefaults:
  sync: [{resource: nodes, value: all}, {resource: daemonsets, value: translated}]
  nodes: {allowedLabels: [disk]}
spaces:
- metadata: {name: own}
  spec: {isolation: Dedicated, nodes: {selector: {pool: own}}}`))
	d := &daemons{b: b, host: b.host(t), demo: b.demo(t), own: b.space(t, "own")}
	d.awaitNodes(t, d.demo, 3)
	d.awaitNodes(t, d.own, 0)
	d.host.kubectl(t, "label", "node", "host-node-1", "host-node-2", "pool=own")
	d.awaitNodes(t, d.own, 2)
	for _, space := range []*cluster{d.demo, d.own} {
		space.apply(t, agent)
		space.kubectl(t, "rollout", "status", "daemonset/agent", "--timeout=90s")
	}
	d.awaitOn(t, "demo", "host-node-1", "host-node-2", "host-node-3")
	d.awaitOn(t, "own", "host-node-1", "host-node-2")

	t.Run("roll, and back", d.rolls)
	t.Run("hide the host", func(t *testing.T) { checkHidden(t, b, "demo") }) // before names of its nodes are tried
	t.Run("are refused what other pods are", d.attacks)
	t.Run("name no node but their space's", d.names)
	t.Run("are told by nobody but their controller", d.forgeries)
	t.Run("leave virtual nodes to Berth", func(t *testing.T) { writeVirtualNodes(t, d.demo, d.demo) })
	t.Run("follow nodes that close and open", d.follows)
	t.Run("follow nodes that come and go", d.comeAndGo)
	t.Run("follow the labels that tenants may select by", d.selects)
	t.Run("wake their space", d.wakes)
	t.Run("are bounded by the space's quota", d.bounded)
	t.Run("go with their pods", func(t *testing.T) {
		d.own.kubectl(t, "delete", "daemonset", "--all")
		d.awaitOn(t, "own")
		d.awaitNodes(t, d.own, 3)
	})
	t.Run("stay when they are disabled, until they are deleted", d.leaves)
}

type daemons struct {
	b               *berth
	host, demo, own *cluster
}

// awaitNodes waits until a space has so many nodes, and returns their names.
func (d *daemons) awaitNodes(t *testing.T, space *cluster, count int) (names []string) {
	t.Helper()
	eventually(t, func() (err error) {
		if names, err = space.nodeNames(t); err != nil {
			return err
		}
		return expect("nodes of the space", len(names), count)
	})
	return names
}

// awaitOn waits until a space's agents run on these of the host's nodes, one each,
// and the space says so.
func (d *daemons) awaitOn(t *testing.T, name string, nodes ...string) {
	t.Helper()
	space := map[string]*cluster{"demo": d.demo, "own": d.own}[name]
	eventually(t, func() error {
		all, err := d.host.CoreV1().Pods("berth-"+name).List(t.Context(), metav1.ListOptions{LabelSelector: "app=agent"})
		if err != nil {
			return err
		}
		var on []string
		for i := range all.Items {
			if isRunning(&all.Items[i]) {
				on = append(on, all.Items[i].Spec.NodeName)
			}
		}
		slices.Sort(on)
		if !slices.Equal(on, nodes) || len(all.Items) != len(nodes) {
			return fmt.Errorf("agents of %s run on %v, and are %d, want them on %v", name, on, len(all.Items), nodes)
		}
		pods, err := space.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{LabelSelector: "app=agent"})
		if err != nil {
			return err
		}
		seen := map[string]bool{}
		for _, p := range pods.Items {
			asked := p.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms[0].MatchFields[0].Values[0]
			if p.Spec.NodeName != asked {
				return fmt.Errorf("pod %s was made for %s and is on %q", p.Name, asked, p.Spec.NodeName)
			}
			seen[asked] = true
		}
		return expect("nodes that the space sees its agents on", len(seen), len(nodes))
	})
	if len(nodes) == 0 {
		return
	}
	await(t, space.AppsV1().DaemonSets("default").Get, "agent", func(s *appsv1.DaemonSet) error {
		want, is := int32(len(nodes)), s.Status
		if is.DesiredNumberScheduled != want || is.NumberAvailable != want || is.UpdatedNumberScheduled != want || is.NumberMisscheduled != 0 {
			return fmt.Errorf("its status is %+v, want %d of each", is, want)
		}
		return nil
	})
}

func (d *daemons) images(t *testing.T) map[string]int {
	t.Helper()
	count := map[string]int{}
	for _, p := range must(d.demo.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{LabelSelector: "app=agent"}))(t).Items {
		count[p.Spec.Containers[0].Image]++
	}
	return count
}

func (d *daemons) rolls(t *testing.T) {
	roll := func(image string) {
		t.Helper()
		d.demo.kubectl(t, "set", "image", "daemonset/agent", "c="+image)
		d.demo.kubectl(t, "rollout", "status", "daemonset/agent", "--timeout=90s")
		if got := d.images(t); !maps.Equal(got, map[string]int{image: 3}) {
			t.Errorf("once rolled to %s, pods have the images %v", image, got)
		}
	}
	roll("agent:2")
	if out := d.demo.kubectl(t, "rollout", "history", "daemonset/agent"); !strings.Contains(out, "\n2 ") {
		t.Errorf("history has no second revision:\n%s", out)
	}
	d.demo.kubectl(t, "rollout", "undo", "daemonset/agent")
	d.demo.kubectl(t, "rollout", "status", "daemonset/agent", "--timeout=90s")
	if got := d.images(t); !maps.Equal(got, map[string]int{"agent:1": 3}) {
		t.Errorf("once undone, pods have the images %v", got)
	}
	d.demo.kubectl(t, "patch", "daemonset", "agent", "-p", `{"spec":{"updateStrategy":{"rollingUpdate":{"maxSurge":1,"maxUnavailable":0}}}}`)
	roll("agent:3")

	d.demo.kubectl(t, "patch", "daemonset", "agent", "-p", `{"spec":{"updateStrategy":{"type":"OnDelete","rollingUpdate":null}}}`)
	d.demo.kubectl(t, "set", "image", "daemonset/agent", "c=agent:4")
	await(t, d.demo.AppsV1().DaemonSets("default").Get, "agent", func(s *appsv1.DaemonSet) error {
		return expect("pods of its latest template", s.Status.UpdatedNumberScheduled, 0)
	})
	one := d.demo.awaitPods(t, "default", "app=agent", 3)[0]
	d.demo.kubectl(t, "delete", "pod", one.Name)
	await(t, d.demo.AppsV1().DaemonSets("default").Get, "agent", func(s *appsv1.DaemonSet) error {
		return expect("pods of its latest template", s.Status.UpdatedNumberScheduled, 1)
	})
	if got := d.images(t); !maps.Equal(got, map[string]int{"agent:3": 2, "agent:4": 1}) {
		t.Errorf("with OnDelete, once one pod is deleted, pods have the images %v", got)
	}
	d.demo.kubectl(t, "patch", "daemonset", "agent", "-p", `{"spec":{"updateStrategy":{"type":"RollingUpdate"}}}`)
	d.awaitOn(t, "demo", "host-node-1", "host-node-2", "host-node-3")
}

// attacks asks in a DaemonSet for what a pod may not have.
func (d *daemons) attacks(t *testing.T) {
	ns := d.demo.namespace(t, "attacks")
	for name, spec := range map[string]struct{ spec, says string }{
		"host-path":       {`{volumes: [{name: v, hostPath: {path: /}}], containers: [{name: c, image: i}]}`, "hostPath"},
		"host-port":       {`{containers: [{name: c, image: i, ports: [{containerPort: 80, hostPort: 80}]}]}`, "hostPort"},
		"host-network":    {`{hostNetwork: true, containers: [{name: c, image: i}]}`, "hostNetwork"},
		"host-pid":        {`{hostPID: true, containers: [{name: c, image: i}]}`, "hostPID"},
		"privileged":      {`{containers: [{name: c, image: i, securityContext: {privileged: true}}]}`, "privileged"},
		"a-selector":      {`{nodeSelector: {app.kubernetes.io/managed-by: berth}, containers: [{name: c, image: i}]}`, "nodeSelector"},
		"a-preference":    {`{affinity: {nodeAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 1, preference: {matchExpressions: [{key: rack, operator: Exists}]}}]}}, containers: [{name: c, image: i}]}`, "nodeAffinity"},
		"system-priority": {`{priorityClassName: system-node-critical, containers: [{name: c, image: i}]}`, "priorityClassName"},
	} {
		d.demo.apply(t, fmt.Sprintf("{apiVersion: apps/v1, kind: DaemonSet, metadata: {name: %s}, spec: {selector: {matchLabels: {a: b}}, "+
			"template: {metadata: {labels: {a: b}}, spec: %s}}}", name, spec.spec), "-n", ns)
		event := d.demo.awaitEvent(t, ns, "DaemonSet", name, "FailedCreate")
		if !strings.Contains(event.Message, spec.says) {
			t.Errorf("%s: the event says %q, not %q", name, event.Message, spec.says)
		}
	}
	// No node of the space's is as these want it: there is nothing to be made.
	for name, affinity := range map[string]string{
		"a-host-node": `{matchFields: [{key: metadata.name, operator: In, values: [host-node-1]}]}`,
		"a-label":     `{matchExpressions: [{key: pool, operator: Exists}]}`,
	} {
		d.demo.apply(t, fmt.Sprintf("{apiVersion: apps/v1, kind: DaemonSet, metadata: {name: %s}, spec: {selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, "+
			"spec: {affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [%s]}}}, containers: [{name: c, image: i}]}}}}", name, affinity), "-n", ns)
		await(t, d.demo.AppsV1().DaemonSets(ns).Get, name, func(s *appsv1.DaemonSet) error {
			return expect("generation that was seen", s.Status.ObservedGeneration, s.Generation)
		})
	}
	if pods := must(d.demo.CoreV1().Pods(ns).List(t.Context(), metav1.ListOptions{}))(t).Items; len(pods) > 0 {
		t.Errorf("%d pods were made, such as %s", len(pods), pods[0].Name)
	}
}

func onNode(name string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
			NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchFields: []corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{name}}}}},
		}}}
	}
}

// names has pods of the tenant's own ask for nodes by name.
func (d *daemons) names(t *testing.T) {
	ns := d.demo.namespace(t, "names")
	mine, theirs := d.awaitNodes(t, d.demo, 3), d.awaitNodes(t, d.own, 2)
	for what, name := range map[string]string{"a-host-node": "host-node-1", "another-spaces": theirs[0], "none": "node-000000000000"} {
		must(d.demo.CoreV1().Pods(ns).Create(t.Context(), newPod(what, onNode(name)), metav1.CreateOptions{}))(t)
		event := d.demo.awaitEvent(t, ns, "Pod", what, "SpaceForbids")
		if !strings.Contains(event.Message, "does not exist in this space") {
			t.Errorf("%s: the event says %q", what, event.Message)
		}
		if _, err := d.host.CoreV1().Pods("berth-demo").Get(t.Context(), hostName(ns, what), metav1.GetOptions{}); err == nil {
			t.Errorf("%s: there is a host pod", what)
		}
	}
	if p := d.demo.run(t, ns, newPod("chosen", onNode(mine[1]))); p.Spec.NodeName != mine[1] {
		t.Errorf("a pod for %s runs on %s", mine[1], p.Spec.NodeName)
	}
	_, err := d.demo.CoreV1().Pods(ns).Create(t.Context(), newPod("bound", func(p *corev1.Pod) { p.Spec.NodeName = mine[0] }), metav1.CreateOptions{})
	refused(t, "a pod's nodeName", err, "spec.nodeName")
}

// forgeries has a tenant write what its controller does.
func (d *daemons) forgeries(t *testing.T) {
	sets := d.demo.AppsV1().DaemonSets("default")
	set := must(sets.Patch(t.Context(), "agent", types.MergePatchType,
		[]byte(`{"status":{"desiredNumberScheduled":1000000,"numberMisscheduled":7,"currentNumberScheduled":0}}`), metav1.PatchOptions{}, "status"))(t)
	forged := newPod("forged", func(p *corev1.Pod) {
		p.Labels = map[string]string{"app": "agent"}
		p.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(set, appsv1.SchemeGroupVersion.WithKind("DaemonSet"))}
		onNode("host-node-1")(p)
	})
	must(d.demo.CoreV1().Pods("default").Create(t.Context(), forged, metav1.CreateOptions{}))(t)
	// It is the DaemonSet's by its own word, and for no node that there is.
	awaitGone(t, "a pod of the DaemonSet's for a node that is not there", d.demo.CoreV1().Pods("default").Get, "forged")
	d.awaitOn(t, "demo", "host-node-1", "host-node-2", "host-node-3")
}

func (d *daemons) selects(t *testing.T) {
	d.demo.kubectl(t, "patch", "daemonset", "agent", "-p", `{"spec":{"template":{"spec":{"nodeSelector":{"disk":"ssd"}}}}}`)
	d.awaitOn(t, "demo")
	d.host.kubectl(t, "label", "node", "host-node-2", "disk=ssd", "secret=host-zone")
	d.awaitOn(t, "demo", "host-node-2")
	for _, n := range must(d.demo.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{}))(t).Items {
		for key := range n.Labels {
			if !slices.Contains([]string{"disk", corev1.LabelHostname, corev1.LabelOSStable, "app.kubernetes.io/managed-by"}, key) {
				t.Errorf("a virtual node has the label %s", key)
			}
		}
	}
	d.host.kubectl(t, "label", "node", "host-node-2", "disk-")
	d.awaitOn(t, "demo")
	d.demo.kubectl(t, "patch", "daemonset", "agent", "--type=json", "-p", `[{"op":"remove","path":"/spec/template/spec/nodeSelector"}]`)
	d.awaitOn(t, "demo", "host-node-1", "host-node-2", "host-node-3")
}

// wakes has nodes come and go while spaces sleep, of which nobody asks anything.
func (d *daemons) wakes(t *testing.T) {
	sleep := func(space string) {
		t.Helper()
		eventually(t, func() error { // one of its pods may have changed just then
			if _, stderr, code := runBerth(t, "sleep", space, "--data-dir", d.b.dir); code != 0 {
				return fmt.Errorf("berth sleep %s ends with %d: %s", space, code, stderr)
			}
			state, _ := d.b.stateOf(t, space)
			return expect("state of space "+space, state, "Asleep")
		})
	}
	hosts := func(space string, count int) {
		t.Helper()
		d.host.awaitPods(t, "berth-"+space, "app=agent", count)
	}
	sleep("own")
	d.host.kubectl(t, "label", "node", "host-node-3", "pool=own")
	hosts("own", 3)
	sleep("demo")
	d.host.kubectl(t, "label", "node", "host-node-3", "disk=ssd") // which tenants may select by
	eventually(t, func() error {
		if state, _ := d.b.stateOf(t, "demo"); state != "Running" {
			return fmt.Errorf("the space is %s", state)
		}
		return nil
	})
	d.awaitOn(t, "own", "host-node-1", "host-node-2", "host-node-3")
}

// leaves comes last: berth is another one then.
func (d *daemons) leaves(t *testing.T) {
	d.b.stop(t, syscall.SIGTERM)
	d.b.up(t)
	demo, host := d.b.demo(t), d.b.host(t)
	eventually(t, func() error {
		names, err := demo.nodeNames(t)
		if err != nil {
			return err
		}
		return expect("nodes of the space", len(names), 0)
	})
	host.awaitPods(t, "berth-demo", "app=agent", 3)
	if out, err := demo.tryKubectl(t, strings.ReplaceAll(agent, "agent", "another"), "create", "-f", "-"); err == nil || !strings.Contains(out, "use a Deployment") {
		t.Errorf("another DaemonSet: %v: %s", err, out)
	}
	demo.kubectl(t, "delete", "daemonset", "agent")
	eventually(t, func() error {
		left, err := host.CoreV1().Pods("berth-demo").List(t.Context(), metav1.ListOptions{LabelSelector: "app=agent"})
		if err != nil {
			return err
		}
		return expect("agents on the host", len(left.Items), 0)
	})
}

func (d *daemons) bounded(t *testing.T) {
	ns := d.demo.namespace(t, "many")
	d.host.kubectl(t, "patch", "resourcequota", "berth", "-n", "berth-demo", "--type=merge", "-p", `{"spec":{"hard":{"pods":"10"}}}`)
	for i := range 4 {
		d.demo.apply(t, strings.ReplaceAll(agent, "agent", fmt.Sprintf("agent-%d", i)), "-n", ns)
	}
	eventually(t, func() error {
		pods, err := d.demo.CoreV1().Pods(ns).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		return expect("pods in the space", len(pods.Items), 12)
	})
	eventually(t, func() error {
		events, err := d.demo.CoreV1().Events(ns).List(t.Context(), metav1.ListOptions{FieldSelector: "reason=HostQuotaExceeded"})
		if err == nil && len(events.Items) == 0 {
			err = fmt.Errorf("nothing tells of the quota")
		}
		return err
	})
	if pods := must(d.host.CoreV1().Pods("berth-demo").List(t.Context(), metav1.ListOptions{}))(t).Items; len(pods) > 10 {
		t.Errorf("there are %d pods on the host", len(pods))
	}
}
