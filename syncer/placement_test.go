// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package syncer_test

import (
	"errors"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-dev/berth/translate"
)

// S7, N1: a label of nodes that the admin takes back is refused to a pod that waits
// for its host pod, in an event. One that runs stays where it is, and is synced on.
func TestALabelThatIsTakenBackIsRefusedToPodsThatWait(t *testing.T) {
	t.Parallel()
	env := newEnv(t, "takenback")
	const label = "takenback.example/disk"
	patch := func(value string) []byte { return fmt.Appendf(nil, `{"metadata":{"labels":{%q:%s}}}`, label, value) }
	nodes, err := env.host.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{Limit: 1})
	if err != nil || len(nodes.Items) == 0 {
		t.Fatalf("the host's nodes are %v (%v)", nodes, err)
	}
	if _, err := env.host.CoreV1().Nodes().Patch(t.Context(), nodes.Items[0].Name, types.MergePatchType, patch(`"ssd"`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	allow := func(labels ...string) {
		t.Helper()
		if err := errors.Join(env.kill(), env.stopPlane(t.Context())); err != nil {
			t.Fatal(err)
		}
		env.where = translate.Placement{Labels: labels}
		env.build(t)
		if err := env.startPlane(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	allow(label)
	env.begin(nil)
	ours, theirs := env.virtual.CoreV1().Pods("default"), env.host.CoreV1().Pods(env.space.HostNamespace())
	pod := func(name string) *corev1.Pod {
		v := newPod(name)
		v.Spec.NodeSelector = map[string]string{label: "ssd"}
		return v
	}
	must(t, ours.Create, pod("runs"))
	running := func(p *corev1.Pod) error {
		if p.Status.Phase != corev1.PodRunning {
			return errors.New("it is " + string(p.Status.Phase))
		}
		return nil
	}
	before := awaited(t, "see it run", ours.Get, "runs", running)
	onHost := awaited(t, "see it on the host", theirs.Get, env.hostName("runs"), nil)
	if err := env.kill(); err != nil {
		t.Fatal(err)
	}
	must(t, ours.Create, pod("waits"))

	allow()
	env.begin(nil)
	env.awaitWarning(t, "Pod", "waits", "spec.nodeSelector["+label+"]", "remove the field")
	if err := gone(theirs.Get(t.Context(), env.hostName("waits"), metav1.GetOptions{})); err != nil {
		t.Error(err)
	}
	if _, err := ours.Patch(t.Context(), "runs", types.MergePatchType, []byte(`{"metadata":{"labels":{"late":"yes"}}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	awaited(t, "see its new label on the host", theirs.Get, env.hostName("runs"), func(h *corev1.Pod) error {
		if h.UID != onHost.UID || h.Spec.NodeSelector[label] != "ssd" {
			t.Fatalf("it is another pod, or runs elsewhere: %v", h.Spec.NodeSelector)
		}
		if h.Labels["late"] != "yes" {
			return fmt.Errorf("labels are %v", h.Labels)
		}
		return running(h)
	})
	if after, err := ours.Get(t.Context(), "runs", metav1.GetOptions{}); err != nil || after.UID != before.UID || running(after) != nil {
		t.Errorf("in the space it is %v (%v)", after, err)
	}
}
