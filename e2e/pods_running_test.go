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
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// report writes to a host pod's status what a kubelet would.
func (c *cluster) report(t *testing.T, name, status string) {
	t.Helper()
	patch := []byte(`{"status":` + status + `}`)
	if _, err := c.CoreV1().Pods(hostNamespace).Patch(t.Context(), name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status"); err != nil {
		t.Fatal(err)
	}
}

// S4, M4, N1: a container that is added to a pod that runs reaches the host, no
// stronger than any, and tells how it is without telling where.
func TestEphemeralContainersGoToThePodThatRuns(t *testing.T) {
	t.Parallel()
	b := sharedBerth(t)
	demo, host := b.demo(t), b.host(t)
	ns := demo.namespace(t, "debugging")
	demo.kubectl(t, "create", "secret", "generic", "late", "--from-literal=word=open-sesame", "-n", ns)
	demo.run(t, ns, newPod("debugged"))
	name := hostName(ns, "debugged")
	for profile, says := range map[string]string{"general": "SYS_PTRACE", "sysadmin": "privileged"} {
		out, err := demo.tryKubectl(t, "", "debug", "pod/debugged", "--image=busybox", "--profile="+profile, "-n", ns, "--", "true")
		if err == nil || !strings.Contains(out, says) || !strings.Contains(out, "--profile=baseline") {
			t.Errorf("kubectl debug --profile=%s says: %s", profile, out)
		}
	}
	demo.kubectl(t, "debug", "pod/debugged", "--image=busybox", "--profile=baseline", "--container=dbg", "--target=c", "--env=A=b", "-n", ns, "--", "true")
	h := await(t, host.CoreV1().Pods(hostNamespace).Get, name, func(h *corev1.Pod) error {
		return expect("the host pod's ephemeral containers", len(h.Spec.EphemeralContainers), 1)
	})
	dbg := h.Spec.EphemeralContainers[0]
	if dbg.Name != "dbg" || dbg.TargetContainerName != "c" || !slices.Contains(dbg.Env, corev1.EnvVar{Name: "A", Value: "b"}) ||
		!slices.ContainsFunc(dbg.Env, func(e corev1.EnvVar) bool { return e.Name == "KUBERNETES_SERVICE_HOST" && e.Value != "" }) {
		t.Errorf("the host has %+v", dbg)
	}
	host.report(t, name, `{"ephemeralContainerStatuses":[{"name":"dbg","image":"busybox","imageID":"","ready":false,"restartCount":0,"state":{"terminated":{
		"exitCode":128,"reason":"StartError","message":"container of `+name+` on `+h.Spec.NodeName+` in `+hostNamespace+` did not start"}}}]}`)
	v := await(t, demo.CoreV1().Pods(ns).Get, "debugged", func(v *corev1.Pod) error {
		return expect("statuses of ephemeral containers", len(v.Status.EphemeralContainerStatuses), 1)
	})
	ended := v.Status.EphemeralContainerStatuses[0].State.Terminated
	if ended == nil || ended.Reason != "StartError" || ended.Message == "" {
		t.Fatalf("the space is told %v", v.Status.EphemeralContainerStatuses)
	}
	for _, secret := range []string{name, h.Spec.NodeName, hostNamespace} {
		if strings.Contains(ended.Message, secret) {
			t.Errorf("the space hears of %s: %s", secret, ended.Message)
		}
	}

	// A second one brings what only it refers to.
	v.Spec.EphemeralContainers = append(v.Spec.EphemeralContainers, corev1.EphemeralContainer{EphemeralContainerCommon: corev1.EphemeralContainerCommon{
		Name: "second", Image: "busybox", ImagePullPolicy: corev1.PullIfNotPresent, TerminationMessagePolicy: corev1.TerminationMessageReadFile,
		EnvFrom: []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "late"}}}},
	}})
	eventually(t, func() error {
		current, err := demo.CoreV1().Pods(ns).Get(t.Context(), "debugged", metav1.GetOptions{})
		if err != nil {
			return err
		}
		v.ResourceVersion = current.ResourceVersion
		_, err = demo.CoreV1().Pods(ns).UpdateEphemeralContainers(t.Context(), "debugged", v, metav1.UpdateOptions{})
		return err
	})
	await(t, host.CoreV1().Secrets(hostNamespace).Get, hostName(ns, "late"), there)
	await(t, host.CoreV1().Pods(hostNamespace).Get, name, func(h *corev1.Pod) error {
		if len(h.Spec.EphemeralContainers) != 2 {
			return errors.New("it is not on the host")
		}
		return expect("its secret", h.Spec.EphemeralContainers[1].EnvFrom[0].SecretRef.Name, hostName(ns, "late"))
	})
}

// S4, Q3: a pod that runs gets more CPU on the host when it does in the space,
// within the quota, and tells how far that has come.
func TestAPodIsResizedWhereItRuns(t *testing.T) {
	t.Parallel()
	b := sharedBerth(t)
	demo, host := b.demo(t), b.host(t)
	ns := demo.namespace(t, "resizing")
	demo.run(t, ns, newPod("resized", func(p *corev1.Pod) {
		p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m")}
	}))
	name := hostName(ns, "resized")
	h := must(host.CoreV1().Pods(hostNamespace).Get(t.Context(), name, metav1.GetOptions{}))(t)
	status := func(cpu string) string {
		return `{"observedGeneration":` + fmt.Sprint(h.Generation) + `,"containerStatuses":[{"name":"c","allocatedResources":{"cpu":"` + cpu + `"},"resources":{"requests":{"cpu":"` + cpu + `"}}}]`
	}
	host.report(t, name, status("100m")+"}")
	has := func(cpu string) func(*corev1.Pod) error {
		return func(v *corev1.Pod) error {
			c := v.Status.ContainerStatuses[0]
			if c.Resources == nil {
				return errors.New("the status tells no resources")
			}
			return expect("what the container has", c.Resources.Requests.Cpu().String()+" "+c.AllocatedResources.Cpu().String(), cpu+" "+cpu)
		}
	}
	await(t, demo.CoreV1().Pods(ns).Get, "resized", has("100m"))
	resize := func(cpu string) {
		t.Helper()
		demo.kubectl(t, "patch", "pod", "resized", "-n", ns, "--subresource=resize", "-p",
			`{"spec":{"containers":[{"name":"c","resources":{"requests":{"cpu":"`+cpu+`"}}}]}}`)
	}
	resize("300m")
	h = await(t, host.CoreV1().Pods(hostNamespace).Get, name, func(h *corev1.Pod) error {
		r := h.Spec.Containers[0].Resources
		return expect("the host pod's CPU", r.Requests.Cpu().String()+" of "+r.Limits.Cpu().String(), "300m of 300m")
	})
	host.report(t, name, status("100m")+`,"conditions":[{"type":"PodResizeInProgress","status":"True","observedGeneration":`+fmt.Sprint(h.Generation)+`}]}`)
	await(t, demo.CoreV1().Pods(ns).Get, "resized", func(v *corev1.Pod) error {
		i := slices.IndexFunc(v.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.PodResizeInProgress })
		if i < 0 {
			return errors.New("the space does not hear of the resize")
		}
		return expect("generations of the resize", [2]int64{v.Status.Conditions[i].ObservedGeneration, v.Status.ObservedGeneration}, [2]int64{v.Generation, v.Generation})
	})
	host.report(t, name, status("300m")+`,"conditions":[{"type":"PodResizeInProgress","$patch":"delete"}]}`)
	await(t, demo.CoreV1().Pods(ns).Get, "resized", has("300m"))

	told := func(says string) {
		t.Helper()
		eventually(t, func() error {
			out := demo.kubectl(t, "get", "events", "-n", ns, "--field-selector=involvedObject.name=resized", "-o", "jsonpath={range .items[*]}{.reason}: {.message}\n{end}")
			if !strings.Contains(out, says) {
				return fmt.Errorf("the pod's events are %s", out)
			}
			if strings.Contains(out, "allocatable") {
				t.Errorf("the events tell what the node has: %s", out)
			}
			return nil
		})
	}
	resize("20")
	told("HostQuotaExceeded: exceeded quota")
	resize("1000")
	told("HostRefused: the pod's new resources do not fit on its node")
	v := must(demo.CoreV1().Pods(ns).Get(t.Context(), "resized", metav1.GetOptions{}))(t)
	if now := must(demo.CoreV1().Pods(ns).Get(t.Context(), "resized", metav1.GetOptions{}))(t); now.Status.ObservedGeneration >= v.Generation {
		t.Errorf("generation %d is said to be seen, of %d: the host has refused it", now.Status.ObservedGeneration, v.Generation)
	}
	if h := must(host.CoreV1().Pods(hostNamespace).Get(t.Context(), name, metav1.GetOptions{}))(t); h.Spec.Containers[0].Resources.Requests.Cpu().String() != "300m" {
		t.Errorf("past the quota, the host pod has %v", h.Spec.Containers[0].Resources)
	}
	resize("200m")
	await(t, host.CoreV1().Pods(hostNamespace).Get, name, func(h *corev1.Pod) error {
		return expect("the host pod's CPU", h.Spec.Containers[0].Resources.Requests.Cpu().String(), "200m")
	})
}

// S4: a controller of the tenant's says when a pod is ready, and the host's
// endpoints hear of it.
func TestReadinessGatesAreTheTenantsToAnswer(t *testing.T) {
	t.Parallel()
	b := sharedBerth(t)
	demo, host := b.demo(t), b.host(t)
	ns := demo.namespace(t, "gates")
	waiting := newPod("waiting", func(p *corev1.Pod) {
		p.Spec.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: "example.com/lb"}}
	})
	if _, err := demo.CoreV1().Pods(ns).Create(t.Context(), waiting, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	name := hostName(ns, "waiting")
	says := func(status string) {
		t.Helper()
		patch := []byte(`{"status":{"conditions":[{"type":"example.com/lb","status":"` + status + `"},{"type":"example.com/other","status":"True"}]}}`)
		if _, err := demo.CoreV1().Pods(ns).Patch(t.Context(), "waiting", types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status"); err != nil {
			t.Fatal(err)
		}
	}
	hears := func(want corev1.ConditionStatus) {
		t.Helper()
		await(t, host.CoreV1().Pods(hostNamespace).Get, name, func(h *corev1.Pod) error {
			if len(h.Spec.ReadinessGates) != 1 {
				return fmt.Errorf("the host pod's gates are %v", h.Spec.ReadinessGates)
			}
			for _, c := range h.Status.Conditions {
				if strings.HasPrefix(string(c.Type), "example.com/") {
					return fmt.Errorf("the host pod has condition %s", c.Type)
				}
			}
			return expect("the answer on the host", conditionOf(h, h.Spec.ReadinessGates[0].ConditionType), want)
		})
	}
	ready := func(want corev1.ConditionStatus) {
		t.Helper()
		await(t, demo.CoreV1().Pods(ns).Get, "waiting", func(v *corev1.Pod) error {
			return expect("whether the pod is ready", conditionOf(v, corev1.PodReady), want)
		})
	}
	hears("") // simulated nodes say that all gates are met
	ready(corev1.ConditionFalse)
	says("True")
	hears(corev1.ConditionTrue)
	ready(corev1.ConditionTrue)
	says("False")
	hears(corev1.ConditionFalse)
	ready(corev1.ConditionFalse)
	v := must(demo.CoreV1().Pods(ns).Get(t.Context(), "waiting", metav1.GetOptions{}))(t)
	if got := conditionOf(v, "example.com/other"); got != corev1.ConditionTrue {
		t.Errorf("another condition that the tenant wrote is %q", got)
	}
}

func conditionOf(pod *corev1.Pod, kind corev1.PodConditionType) corev1.ConditionStatus {
	for _, c := range pod.Status.Conditions {
		if c.Type == kind {
			return c.Status
		}
	}
	return ""
}

// S4: sidecars, resources of a pod as a whole, and a full name as hostname.
func TestPodsOfNewerKindsRun(t *testing.T) {
	t.Parallel()
	b := sharedBerth(t)
	demo, host := b.demo(t), b.host(t)
	ns := demo.namespace(t, "newer")
	demo.run(t, ns, newPod("newer", func(p *corev1.Pod) {
		p.Spec.OS = &corev1.PodOS{Name: corev1.Linux}
		p.Spec.Hostname, p.Spec.Subdomain, p.Spec.SetHostnameAsFQDN = "one", "web", ptr.To(true)
		p.Spec.InitContainers = []corev1.Container{{Name: "proxy", Image: "envoy", RestartPolicy: ptr.To(corev1.ContainerRestartPolicyAlways)}}
		p.Spec.Resources = &corev1.ResourceRequirements{Limits: corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: resource.MustParse("64Mi"),
		}}
	}))
	h := must(host.CoreV1().Pods(hostNamespace).Get(t.Context(), hostName(ns, "newer"), metav1.GetOptions{}))(t)
	if h.Spec.Hostname != "one" || h.Spec.Subdomain != "" || ptr.Deref(h.Spec.HostnameOverride, "") != "one.web."+ns+".svc.cluster.local" {
		t.Errorf("the host pod is called %q %q %v", h.Spec.Hostname, h.Spec.Subdomain, h.Spec.HostnameOverride)
	}
	if init := h.Spec.InitContainers; len(init) != 1 || ptr.Deref(init[0].RestartPolicy, "") != corev1.ContainerRestartPolicyAlways {
		t.Errorf("the sidecar is %v", init)
	}
	if h.Spec.Resources == nil || h.Spec.Resources.Limits.Memory().String() != "64Mi" || h.Spec.OS == nil {
		t.Errorf("the host pod's resources are %v, its OS %v", h.Spec.Resources, h.Spec.OS)
	}
	v := must(demo.CoreV1().Pods(ns).Get(t.Context(), "newer", metav1.GetOptions{}))(t)
	if s := v.Status.InitContainerStatuses; len(s) != 1 || s[0].State.Running == nil {
		t.Errorf("the sidecar's status is %v", s)
	}
}
