// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubernetes/pkg/fieldpath"
)

// full is a pod that asks for all that a common image may ask for.
const full = `
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {color: blue}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: unused}
data: {color: red}
---
apiVersion: v1
kind: Secret
metadata: {name: password}
stringData: {word: open-sesame}
---
apiVersion: v1
kind: Secret
metadata: {name: unused}
stringData: {word: never}
---
apiVersion: v1
kind: Secret
metadata: {name: registry}
type: kubernetes.io/dockerconfigjson
stringData: {.dockerconfigjson: '{"auths":{"registry.example.com":{"auth":"dTpw"}}}'}
---
apiVersion: v1
kind: Service
metadata: {name: back-end}
spec: {ports: [{port: 8080}]}
---
apiVersion: v1
kind: Pod
metadata:
  name: full
  labels: {app: full, tier: one}
  annotations: {note: hello, example.com/owner: someone}
spec:
  imagePullSecrets: [{name: registry}]
  initContainers:
  - name: init
    image: busybox
    envFrom: [{configMapRef: {name: settings}}]
  containers:
  - name: c
    image: nginx
    envFrom: [{prefix: P_, secretRef: {name: password}}]
    env:
    - {name: COLOR, valueFrom: {configMapKeyRef: {name: settings, key: color}}}
    - {name: WORD, valueFrom: {secretKeyRef: {name: password, key: word}}}
    - {name: POD_NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
    - {name: POD_NAMESPACE, valueFrom: {fieldRef: {fieldPath: metadata.namespace}}}
    - {name: POD_UID, valueFrom: {fieldRef: {fieldPath: metadata.uid}}}
    - {name: POD_TIER, valueFrom: {fieldRef: {fieldPath: "metadata.labels['tier']"}}}
    - {name: POD_OWNER, valueFrom: {fieldRef: {fieldPath: "metadata.annotations['example.com/owner']"}}}
    - {name: POD_ACCOUNT, valueFrom: {fieldRef: {fieldPath: spec.serviceAccountName}}}
    - {name: POD_NODE, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}
    - {name: POD_HOST_IP, valueFrom: {fieldRef: {fieldPath: status.hostIP}}}
    volumeMounts: [{name: all, mountPath: /all}]
  volumes:
  - {name: settings, configMap: {name: settings}}
  - {name: password, secret: {secretName: password}}
  - name: about
    downwardAPI:
      items:
      - {path: labels, fieldRef: {fieldPath: metadata.labels}}
      - {path: annotations, fieldRef: {fieldPath: metadata.annotations}}
      - {path: name, fieldRef: {fieldPath: metadata.name}}
  - name: all
    projected:
      sources:
      - configMap: {name: settings}
      - secret: {name: password}
      - serviceAccountToken: {path: token, audience: vault, expirationSeconds: 3600}
      - downwardAPI: {items: [{path: namespace, fieldRef: {fieldPath: metadata.namespace}}]}
`

// S4, N2: what a container would find, were the host pod run by a kubelet.
func TestAPodFindsItsSurroundingsAsOnAClusterOfItsOwn(t *testing.T) {
	t.Parallel()
	b := sharedBerth(t)
	demo, host := b.demo(t), b.host(t)
	ns := demo.namespace(t, "surroundings")
	demo.apply(t, full, "-n", ns)
	v := demo.awaitRunning(t, ns, "full")
	// The node's alias is told once the host has scheduled the pod.
	h := await(t, host.CoreV1().Pods(hostNamespace).Get, hostName(ns, "full"), func(h *corev1.Pod) error {
		return expect("the node that the pod is told", environment(h)["POD_NODE"], v.Spec.NodeName)
	})
	env := environment(h)
	api := must(demo.CoreV1().Services("default").Get(t.Context(), "kubernetes", metav1.GetOptions{}))(t)
	backend := must(demo.CoreV1().Services(ns).Get(t.Context(), "back-end", metav1.GetOptions{}))(t)
	for name, want := range map[string]string{
		"COLOR": "config map " + hostName(ns, "settings") + " color", "WORD": "secret " + hostName(ns, "password") + " word",
		"POD_NAME": "full", "POD_NAMESPACE": ns, "POD_UID": string(v.UID), "POD_TIER": "one", "POD_OWNER": "someone",
		"POD_ACCOUNT": "default", "POD_HOST_IP": v.Status.PodIP,
		"KUBERNETES_SERVICE_HOST": api.Spec.ClusterIP, "KUBERNETES_SERVICE_PORT": "443",
		"BACK_END_SERVICE_HOST": backend.Spec.ClusterIP, "BACK_END_SERVICE_PORT": "8080",
	} {
		if env[name] != want {
			t.Errorf("%s is %q, want %q", name, env[name], want)
		}
	}
	if from := h.Spec.Containers[0].EnvFrom; len(from) != 1 || from[0].SecretRef.Name != hostName(ns, "password") || from[0].Prefix != "P_" {
		t.Errorf("envFrom is %v", from)
	}
	if init := h.Spec.InitContainers; len(init) != 1 || init[0].Image != "busybox" || init[0].EnvFrom[0].ConfigMapRef.Name != hostName(ns, "settings") {
		t.Errorf("init containers are %v", init)
	}
	if pull := h.Spec.ImagePullSecrets; len(pull) != 1 || pull[0].Name != hostName(ns, "registry") {
		t.Errorf("image pull secrets are %v", pull)
	}
	if h.Spec.Hostname != "full" || h.Spec.DNSPolicy != corev1.DNSClusterFirst {
		t.Errorf("hostname is %q and DNS policy %q", h.Spec.Hostname, h.Spec.DNSPolicy)
	}
	if h.Spec.AutomountServiceAccountToken == nil || *h.Spec.AutomountServiceAccountToken || h.Spec.EnableServiceLinks == nil || *h.Spec.EnableServiceLinks {
		t.Error("the host's own token and services are told to the pod")
	}
	checkFiles(t, v, h, ns)
	checkInUse(t, demo, host, ns)
}

// environment is the first container's; references to other objects are told
// in words.
func environment(h *corev1.Pod) map[string]string {
	out := map[string]string{}
	for _, e := range h.Spec.Containers[0].Env {
		switch from := e.ValueFrom; {
		case from == nil:
			out[e.Name] = e.Value
		case from.ConfigMapKeyRef != nil:
			out[e.Name] = "config map " + from.ConfigMapKeyRef.Name + " " + from.ConfigMapKeyRef.Key
		case from.SecretKeyRef != nil:
			out[e.Name] = "secret " + from.SecretKeyRef.Name + " " + from.SecretKeyRef.Key
		case from.FieldRef != nil:
			out[e.Name] = field(h, from.FieldRef.FieldPath)
		}
	}
	return out
}

// field is what a kubelet finds at path.
func field(h *corev1.Pod, path string) string {
	switch path {
	case "spec.nodeName":
		return h.Spec.NodeName
	case "spec.serviceAccountName":
		return h.Spec.ServiceAccountName
	case "status.hostIP":
		return h.Status.HostIP
	case "status.podIP":
		return h.Status.PodIP
	}
	value, err := fieldpath.ExtractFieldPathAsString(h, path)
	if err != nil {
		return err.Error()
	}
	return value
}

// checkFiles looks at the volumes: each has the tenant's name and the host's source.
func checkFiles(t *testing.T, v, h *corev1.Pod, ns string) {
	t.Helper()
	volumes := map[string]corev1.VolumeSource{}
	for _, volume := range h.Spec.Volumes {
		volumes[volume.Name] = volume.VolumeSource
	}
	if got := volumes["settings"].ConfigMap; got == nil || got.Name != hostName(ns, "settings") {
		t.Errorf("volume of the config map is %v", volumes["settings"])
	}
	if got := volumes["password"].Secret; got == nil || got.SecretName != hostName(ns, "password") {
		t.Errorf("volume of the secret is %v", volumes["password"])
	}
	files := map[string]string{}
	for _, item := range volumes["about"].DownwardAPI.Items {
		files[item.Path] = field(h, item.FieldRef.FieldPath)
	}
	for path, want := range map[string]string{"labels": fieldpath.FormatMap(v.Labels), "annotations": fieldpath.FormatMap(v.Annotations), "name": "full"} {
		if files[path] != want {
			t.Errorf("file %s holds %q, want %q", path, files[path], want)
		}
	}
	sources := volumes["all"].Projected.Sources
	if len(sources) != 4 || sources[0].ConfigMap.Name != hostName(ns, "settings") || sources[1].Secret.Name != hostName(ns, "password") ||
		sources[2].Secret == nil || sources[2].Secret.Items[0].Path != "token" || field(h, sources[3].DownwardAPI.Items[0].FieldRef.FieldPath) != ns {
		t.Errorf("projected sources are %+v", sources)
	}
	for _, name := range []string{h.Spec.ServiceAccountName} {
		if name != "default" {
			t.Errorf("the pod's account on the host is %s, want default, which has no rights", name)
		}
	}
}

// checkInUse follows what the pod refers to, through change and end (S1).
func checkInUse(t *testing.T, demo, host *cluster, ns string) {
	t.Helper()
	configMaps, secrets := host.CoreV1().ConfigMaps(hostNamespace), host.CoreV1().Secrets(hostNamespace)
	await(t, configMaps.Get, hostName(ns, "kube-root-ca.crt"), there)
	registry := await(t, secrets.Get, hostName(ns, "registry"), there)
	if registry.Type != corev1.SecretTypeDockerConfigJson {
		t.Errorf("image pull secret is of type %s on the host", registry.Type)
	}
	await(t, secrets.Get, hostName(ns, "password"), func(s *corev1.Secret) error {
		return expect("the secret on the host", string(s.Data["word"]), "open-sesame")
	})
	for kind, err := range map[string]error{
		"config map": second(configMaps.Get(t.Context(), hostName(ns, "unused"), metav1.GetOptions{})),
		"secret":     second(secrets.Get(t.Context(), hostName(ns, "unused"), metav1.GetOptions{})),
	} {
		if !apierrors.IsNotFound(err) {
			t.Errorf("the host has a %s that no pod uses: %v", kind, err)
		}
	}
	patch := []byte(`{"data":{"color":"green"}}`)
	if _, err := demo.CoreV1().ConfigMaps(ns).Patch(t.Context(), "settings", types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	await(t, configMaps.Get, hostName(ns, "settings"), func(c *corev1.ConfigMap) error {
		return expect("the config map on the host", c.Data["color"], "green")
	})
	demo.kubectl(t, "delete", "pod", "full", "-n", ns)
	selector := metav1.ListOptions{LabelSelector: labelNamespace + "=" + ns}
	eventually(t, func() error {
		var left []string
		for _, c := range must(configMaps.List(t.Context(), selector))(t).Items {
			left = append(left, c.Name)
		}
		for _, s := range must(secrets.List(t.Context(), selector))(t).Items {
			left = append(left, s.Name)
		}
		slices.Sort(left)
		return expect("what is left on the host", strings.Join(left, " "), "")
	})
}

func second[T any](_ T, err error) error { return err }

// S4: a pod that is held back has nothing on the host, not even a reason to fail.
func TestAGatedPodComesToTheHostWhenItsGatesAreGone(t *testing.T) {
	t.Parallel()
	b := sharedBerth(t)
	demo, host := b.demo(t), b.host(t)
	ns := demo.namespace(t, "gated")
	gated := newPod("gated", func(p *corev1.Pod) { p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "example.com/wait"}} })
	if _, err := demo.CoreV1().Pods(ns).Create(t.Context(), gated, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	demo.run(t, ns, newPod("later")) // what came after it is on the host
	if _, err := host.CoreV1().Pods(hostNamespace).Get(t.Context(), hostName(ns, "gated"), metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the host has the gated pod: %v", err)
	}
	if _, err := demo.CoreV1().Pods(ns).Patch(t.Context(), "gated", types.JSONPatchType,
		[]byte(`[{"op":"remove","path":"/spec/schedulingGates"}]`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	demo.awaitRunning(t, ns, "gated")
}

// S4, S8: a container without limits gets the default ones on the host, and no
// less than it asks for.
func TestAPodThatAsksForMoreThanTheDefaultLimitRuns(t *testing.T) {
	t.Parallel()
	b := sharedBerth(t)
	demo, host := b.demo(t), b.host(t)
	ns := demo.namespace(t, "asking")
	demo.run(t, ns, newPod("modest"))
	demo.run(t, ns, newPod("asking", func(p *corev1.Pod) {
		p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse("500m"), corev1.ResourceMemory: resource.MustParse("1Gi"),
		}
	}))
	for name, want := range map[string]string{"modest": "250m 512Mi", "asking": "500m 1Gi"} {
		h := must(host.CoreV1().Pods(hostNamespace).Get(t.Context(), hostName(ns, name), metav1.GetOptions{}))(t)
		limits := h.Spec.Containers[0].Resources.Limits
		if got := limits.Cpu().String() + " " + limits.Memory().String(); got != want {
			t.Errorf("limits of pod %s are %s on the host, want %s", name, got, want)
		}
	}
}

// S1, S4: what Kubernetes lets change in a pod changes on the host.
func TestAPodsChangesFollowToTheHost(t *testing.T) {
	t.Parallel()
	b := sharedBerth(t)
	demo, host := b.demo(t), b.host(t)
	ns := demo.namespace(t, "changes")
	demo.run(t, ns, newPod("changing"))
	demo.kubectl(t, "set", "image", "pod/changing", "c=nginx:2", "-n", ns)
	demo.kubectl(t, "label", "pod/changing", "color=blue", "-n", ns)
	await(t, host.CoreV1().Pods(hostNamespace).Get, hostName(ns, "changing"), func(h *corev1.Pod) error {
		return expect("the host pod", fmt.Sprint(h.Spec.Containers[0].Image, h.Labels["color"]), "nginx:2blue")
	})
}
