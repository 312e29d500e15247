// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const patchedSpec = `{patches: [
  {name: registry, resource: pods, path: "spec.containers[*].image", expression: '"mirror.example.com/" + value'},
  {name: team, resource: pods, path: 'metadata.labels["example.com/team"]', expression: 'space.name + "." + object.metadata.namespace'},
  {name: sticky, resource: services, path: spec.sessionAffinity, expression: '"ClientIP"'},
  {name: bandwidth, resource: pods, path: 'metadata.labels["example.com/class"]', expression: 'null'},
]}`

// S1: an admin sets fields of the objects of a space on the host. The tenant's own objects stay as they are. A patch of a space replaces one
// of the platform.
func TestPatchesSetFieldsOnTheHost(t *testing.T) {
	t.Parallel()
	b := start(t, "--space", "usual", configured(t, `spaceDefaults: {patches: [
  {name: bandwidth, resource: pods, path: 'metadata.labels["example.com/class"]', expression: '"small"'}]}`))
	host, usual := b.host(t), b.space(t, "usual")
	applySpace(t, host, "own", patchedSpec)
	own := b.space(t, "own")
	hostPod := func(space, name string) *corev1.Pod {
		t.Helper()
		return must(host.CoreV1().Pods("berth-"+space).Get(t.Context(), space+"--default--"+name, metav1.GetOptions{}))(t)
	}

	usual.run(t, "default", newPod("web"))
	if pod := hostPod("usual", "web"); pod.Spec.Containers[0].Image != "nginx" || pod.Labels["example.com/class"] != "small" {
		t.Errorf("the host pod of a space without patches has the image %s and labels %v", pod.Spec.Containers[0].Image, pod.Labels)
	}
	written := own.run(t, "default", newPod("web"))
	if pod := hostPod("own", "web"); pod.Spec.Containers[0].Image != "mirror.example.com/nginx" || pod.Labels["example.com/team"] != "own.default" || pod.Labels["example.com/class"] != "" {
		t.Errorf("the host pod has the image %s and labels %v", pod.Spec.Containers[0].Image, pod.Labels)
	}
	if written.Spec.Containers[0].Image != "nginx" || len(written.Labels) > 0 {
		t.Errorf("the tenant's pod has the image %s and labels %v", written.Spec.Containers[0].Image, written.Labels)
	}
	own.kubectl(t, "create", "service", "clusterip", "web", "--tcp=80")
	eventually(t, func() error {
		service, err := host.CoreV1().Services("berth-own").Get(t.Context(), "own--default--web", metav1.GetOptions{})
		if err != nil || service.Spec.SessionAffinity != corev1.ServiceAffinityClientIP {
			return fmt.Errorf("the host's service is %+v (%w)", service.Spec, err)
		}
		return nil
	})

	t.Run("an image that the tenant changes is patched, too", func(t *testing.T) {
		own.kubectl(t, "set", "image", "pod/web", "c=nginx:2")
		eventually(t, func() error {
			if image := hostPod("own", "web").Spec.Containers[0].Image; image != "mirror.example.com/nginx:2" {
				return errors.New(image)
			}
			return nil
		})
	})

	t.Run("a change holds for new pods, and restarts none", func(t *testing.T) {
		applySpace(t, host, "own", `{patches: [{name: registry, resource: pods, path: "spec.containers[*].image", expression: '"other.example.com/" + value'}]}`)
		eventually(t, func() error {
			if image := hostPod("own", "web").Spec.Containers[0].Image; image != "other.example.com/nginx:2" {
				return errors.New(image)
			}
			return nil
		})
		if now := own.awaitRunning(t, "default", "web"); now.UID != written.UID {
			t.Error("the pod was replaced")
		}
	})

	t.Run("what is wrong is named, and the space goes on", func(t *testing.T) {
		host.apply(t, spaceObject("own", `{patches: [{name: registry, resource: pods, path: "spec.container[*].image", expression: value}]}`))
		awaitReady(t, host, "own", "False InvalidSpec", `spec.patches[0].path: Invalid value: "spec.container[*].image"`, "has no field container", "correct the path")
		host.apply(t, spaceObject("own", `{patches: [{name: registry, resource: nodes, path: spec, expression: value}]}`))
		awaitReady(t, host, "own", "False InvalidSpec", `spec.patches[0].resource: Unsupported value: "nodes"`)
		host.apply(t, spaceObject("own", `{patches: [{name: registry, resource: services, path: metadata.labels.team, expression: '"a"'}]}`))
		awaitReady(t, host, "own", "False InvalidSpec", `spec.patches[0].path: Forbidden`, "only labels of pods")
		own.run(t, "default", newPod("meanwhile"))
		if image := hostPod("own", "meanwhile").Spec.Containers[0].Image; image != "other.example.com/nginx" {
			t.Errorf("the earlier patch is gone: %s", image)
		}
	})

	t.Run("a patch that fails is told the tenant", func(t *testing.T) {
		applySpace(t, host, "own", `{patches: [{name: from-label, resource: pods, path: "spec.nodeSelector.pool", expression: 'object.metadata.labels["pool"]'}]}`)
		must(own.CoreV1().Pods("default").Create(t.Context(), newPod("unlabeled"), metav1.CreateOptions{}))(t)
		event := own.awaitEvent(t, "default", "Pod", "unlabeled", "SpaceForbids")
		if !strings.Contains(event.Message, `patch "from-label" can't be applied`) || !strings.Contains(event.Message, "no such key") {
			t.Errorf("the event says %q", event.Message)
		}
		own.awaitRunning(t, "default", "web") // what is on the host stays
	})
}

// S1, H: a patch is no way out of the isolation, whoever writes it.
func TestHostilePatchesAreHeldToTheIsolation(t *testing.T) {
	t.Parallel()
	b := start(t, "--space", "demo")
	host := b.host(t)
	for name, patch := range map[string]string{
		"host-network": `{name: it, resource: pods, path: spec.hostNetwork, expression: "true"}`,
		"account":      `{name: it, resource: pods, path: spec.serviceAccountName, expression: "'berth-syncer'"}`,
		"privileged":   `{name: it, resource: pods, path: "spec.containers[*].securityContext.privileged", expression: "true"}`,
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
