// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-dev/berth/translate"
)

const patchedSpec = `{isolation: %s, nodes: {allowedLabels: [kubernetes.io/os]}, patches: [
  {name: registry, resource: pods, path: "spec.containers[*].image", expression: '"mirror.example.com/" + value'},
  {name: debugging, resource: pods, path: "spec.ephemeralContainers[*].image", expression: '"mirror.example.com/" + value'},
  {name: team, resource: pods, path: 'metadata.labels["example.com/team"]', expression: 'tenant.name + space.name + "." + object.metadata.namespace'},
  {name: pool, resource: pods, path: 'spec.nodeSelector["kubernetes.io/os"]', expression: 'object.metadata.namespace == "default" ? "linux" : value'},
  {name: class, resource: pods, path: 'metadata.labels["example.com/class"]', expression: 'null'},
]}`

// S1: an admin sets fields of the pods of a space on the host. The tenant's own pods stay as they are. A patch of a space replaces one of the
// platform.
func TestPatchesSetFieldsOfPodsOnTheHost(t *testing.T) {
	t.Parallel()
	b := start(t, "--space", "usual", configured(t, `spaceDefaults: {patches: [
  {name: class, resource: pods, path: 'metadata.labels["example.com/class"]', expression: '"small"'}]}`))
	host, usual := b.host(t), b.space(t, "usual")
	hostPod := func(space, name string) *corev1.Pod {
		t.Helper()
		return must(host.CoreV1().Pods("berth-"+space).Get(t.Context(), space+"--default--"+name, metav1.GetOptions{}))(t)
	}
	usual.run(t, "default", newPod("web"))
	if pod := hostPod("usual", "web"); pod.Spec.Containers[0].Image != "nginx" || pod.Labels["example.com/class"] != "small" {
		t.Errorf("the host pod of a space without patches has the image %s and labels %v", pod.Spec.Containers[0].Image, pod.Labels)
	}

	for space, isolation := range map[string]string{"own": "Shared", "alone": "Dedicated"} {
		applySpace(t, host, space, fmt.Sprintf(patchedSpec, isolation))
		own := b.space(t, space)
		written := own.run(t, "default", newPod("web"))
		pod := hostPod(space, "web")
		if pod.Spec.Containers[0].Image != "mirror.example.com/nginx" || pod.Labels["example.com/team"] != space+".default" || pod.Labels["example.com/class"] != "" ||
			pod.Spec.NodeSelector["kubernetes.io/os"] != "linux" {
			t.Errorf("%s: the host pod has the image %s, labels %v, node selector %v", space, pod.Spec.Containers[0].Image, pod.Labels, pod.Spec.NodeSelector)
		}
		if written.Spec.Containers[0].Image != "nginx" || len(written.Labels) > 0 {
			t.Errorf("%s: the tenant's pod has the image %s and labels %v", space, written.Spec.Containers[0].Image, written.Labels)
		}
	}
	own := b.space(t, "own")
	uid := own.awaitRunning(t, "default", "web").UID

	t.Run("an image that the tenant changes is patched, too", func(t *testing.T) {
		own.kubectl(t, "set", "image", "pod/web", "c=nginx:2")
		eventually(t, func() error {
			if image := hostPod("own", "web").Spec.Containers[0].Image; image != "mirror.example.com/nginx:2" {
				return errors.New(image)
			}
			return nil
		})
	})

	t.Run("so are ephemeral containers, also of a pod that was not on the host yet", func(t *testing.T) {
		gated := newPod("gated", func(p *corev1.Pod) { p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "example.com/wait"}} })
		must(own.CoreV1().Pods("default").Create(t.Context(), gated, metav1.CreateOptions{}))(t)
		for _, name := range []string{"web", "gated"} {
			now := must(own.CoreV1().Pods("default").Get(t.Context(), name, metav1.GetOptions{}))(t)
			now.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "debug", Image: "busybox"}}}
			must(own.CoreV1().Pods("default").UpdateEphemeralContainers(t.Context(), name, now, metav1.UpdateOptions{}))(t)
		}
		own.kubectl(t, "patch", "pod", "gated", "--type=json", `-p=[{"op": "remove", "path": "/spec/schedulingGates"}]`)
		for _, name := range []string{"web", "gated"} {
			eventually(t, func() error {
				pod, err := host.CoreV1().Pods("berth-own").Get(t.Context(), "own--default--"+name, metav1.GetOptions{})
				if err != nil {
					return err
				}
				if c := pod.Spec.EphemeralContainers; len(c) != 1 || c[0].Image != "mirror.example.com/busybox" {
					return fmt.Errorf("%s has %+v", name, c)
				}
				return nil
			})
		}
	})

	t.Run("a change holds for pods that run, too, and replaces none", func(t *testing.T) {
		applySpace(t, host, "own", `{patches: [{name: registry, resource: pods, path: "spec.containers[*].image", expression: '"other.example.com/" + value'}]}`)
		eventually(t, func() error {
			if pod := hostPod("own", "web"); pod.Spec.Containers[0].Image != "other.example.com/nginx:2" || pod.Labels["example.com/class"] != "small" || pod.Labels["example.com/team"] != "" {
				return fmt.Errorf("the image is %s, and the labels are %v", pod.Spec.Containers[0].Image, pod.Labels)
			}
			return nil
		})
		if now := own.awaitRunning(t, "default", "web"); now.UID != uid {
			t.Error("the pod was replaced")
		}
	})

	t.Run("what is wrong is named, and the space goes on", func(t *testing.T) {
		host.apply(t, spaceObject("own", `{patches: [{name: registry, resource: pods, path: "spec.containers[*].imag", expression: value}]}`))
		awaitReady(t, host, "own", "False InvalidSpec", `spec.patches[0].path: Invalid value: "spec.containers[*].imag"`, "has no field imag", "correct the path")
		if out, err := host.tryKubectl(t, spaceObject("own", `{patches: [{name: registry, resource: nodes, path: spec, expression: value}]}`), "apply", "-f", "-"); err == nil {
			t.Errorf("patches of nodes are accepted: %s", out)
		}
		own.run(t, "default", newPod("meanwhile"))
		if image := hostPod("own", "meanwhile").Spec.Containers[0].Image; image != "other.example.com/nginx" {
			t.Errorf("the earlier patch is gone: %s", image)
		}
	})

	t.Run("the tenant reads why a patch fails, and what runs goes on", func(t *testing.T) {
		applySpace(t, host, "own", `{patches: [{name: from-label, resource: pods, path: "spec.containers[*].image", expression: 'value + ":" + object.metadata.labels["release"]'}]}`)
		must(own.CoreV1().Pods("default").Create(t.Context(), newPod("unlabeled"), metav1.CreateOptions{}))(t)
		event := own.awaitEvent(t, "default", "Pod", "unlabeled", "SpaceForbids")
		if !strings.Contains(event.Message, `patch "from-label" can't be applied`) || !strings.Contains(event.Message, "no such key") {
			t.Errorf("the event says %q", event.Message)
		}
	})

	for name, patch := range map[string]string{
		"image-fails":      `path: "spec.containers[*].image", expression: 'object.metadata.labels["release"]'`,
		"label-fails":      `path: 'metadata.labels["example.com/release"]', expression: 'object.metadata.labels["release"]'`,
		"image-is-refused": `path: "spec.containers[*].image", expression: 'value + " "'`,
	} {
		t.Run("policies select a pod though "+name, func(t *testing.T) {
			applySpace(t, host, "own", fmt.Sprintf("{patches: [{name: %s, resource: pods, %s}]}", name, patch))
			if name == "image-is-refused" {
				own.awaitEvent(t, "default", "Pod", "web", "HostRefused")
			} else {
				awaitMessage(t, own, "web", `patch "`+name+`"`)
			}
			policed := func(want bool) error {
				if labels := hostPod("own", "web").Labels; (labels[translate.LabelPolicedIngress] != "") != want {
					return fmt.Errorf("the labels are %v", labels)
				}
				return nil
			}
			policy := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: networkingv1.NetworkPolicySpec{PolicyTypes: []networkingv1.PolicyType{"Ingress"}}}
			must(own.NetworkingV1().NetworkPolicies("default").Create(t.Context(), policy, metav1.CreateOptions{}))(t)
			eventually(t, func() error { return policed(true) })
			own.kubectl(t, "delete", "networkpolicy", name)
			eventually(t, func() error { return policed(false) })
		})
	}

	t.Run("a pod that can't be changed any more still has its status", func(t *testing.T) {
		applySpace(t, host, "own", `{patches: [{name: spaces, resource: pods, path: "spec.containers[*].image", expression: 'value + " "'}]}`)
		own.awaitEvent(t, "default", "Pod", "web", "HostRefused")
		must(host.CoreV1().Pods("berth-own").Patch(t.Context(), "own--default--web", types.MergePatchType,
			[]byte(`{"status": {"conditions": [{"type": "Initialized", "status": "True"}]}}`), metav1.PatchOptions{}, "status"))(t)
		eventually(t, func() error {
			now := must(own.CoreV1().Pods("default").Get(t.Context(), "web", metav1.GetOptions{}))(t)
			if !slices.ContainsFunc(now.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.PodInitialized }) {
				return fmt.Errorf("the conditions are %+v", now.Status.Conditions)
			}
			return nil
		})
	})
}

// awaitMessage waits for an event about a pod that says so.
func awaitMessage(t *testing.T, c *cluster, pod, says string) {
	t.Helper()
	eventually(t, func() error {
		var got []string
		for _, e := range must(c.CoreV1().Events("default").List(t.Context(), metav1.ListOptions{FieldSelector: "involvedObject.name=" + pod}))(t).Items {
			if strings.Contains(e.Message, says) {
				return nil
			}
			got = append(got, e.Message)
		}
		return fmt.Errorf("no event about %s says %q: %q", pod, says, got)
	})
}

// S1, H: a patch is no way out of the isolation, whoever writes it.
func TestHostilePatchesAreHeldToTheIsolation(t *testing.T) {
	t.Parallel()
	b := start(t, "--space", "demo")
	host := b.host(t)
	for name, patch := range map[string]string{
		"privileged":   `{name: it, resource: pods, path: "spec.containers[*].securityContext.privileged", expression: "true"}`,
		"capabilities": `{name: it, resource: pods, path: "spec.containers[*].securityContext.capabilities.add", expression: "['SYS_ADMIN']"}`,
		"volume":       `{name: it, resource: pods, path: spec.volumes, expression: "[{'name': dyn('a'), 'hostPath': dyn({'path': '/'})}]"}`,
	} {
		applySpace(t, host, "demo", "{patches: ["+patch+"]}")
		demo := b.space(t, "demo")
		must(demo.CoreV1().Pods("default").Create(t.Context(), newPod(name), metav1.CreateOptions{}))(t)
		demo.awaitEvent(t, "default", "Pod", name, "HostRefused")
		if pods := must(host.CoreV1().Pods("berth-demo").List(t.Context(), metav1.ListOptions{}))(t); len(pods.Items) > 0 {
			t.Errorf("%s: the host has %s", name, pods.Items[0].Name)
		}
		demo.kubectl(t, "delete", "pod", name, "--wait=false", "--force")
	}
}
