// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// gpuDeployment is a Deployment of pods with one GPU each.
func gpuDeployment(replicas int) string {
	return fmt.Sprintf(`
apiVersion: apps/v1
kind: Deployment
metadata:
  name: train
spec:
  replicas: %d
  selector:
    matchLabels: {app: train}
  template:
    metadata:
      labels: {app: train}
    spec:
      containers:
      - name: c
        image: nginx
        resources: {limits: {example.com/gpu: 1}}
`, replicas)
}

// awaitMessage waits for an event in the namespace default that contains all texts.
func (c *cluster) awaitMessage(t *testing.T, texts ...string) {
	t.Helper()
	eventually(t, func() error {
		list, err := c.CoreV1().Events("default").List(t.Context(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		var all []string
		for _, e := range list.Items {
			all = append(all, e.Message)
			missing := false
			for _, text := range texts {
				missing = missing || !strings.Contains(e.Message, text)
			}
			if !missing {
				return nil
			}
		}
		return fmt.Errorf("no event says %q, only %q", texts, all)
	})
}

// startWithDevices is a host with a node that has eight GPUs and some huge pages.
func startWithDevices(t *testing.T, args ...string) (*berth, *cluster) {
	t.Helper()
	b := start(t, args...)
	host := b.host(t)
	const has = `{"example.com/gpu": "8", "example.com/fpga": "8", "hugepages-2Mi": "1Gi"}`
	host.kubectl(t, "patch", "node", "host-node-1", "--subresource=status", "--type=merge", "--patch", `{"status": {"capacity": `+has+`, "allocatable": `+has+`}}`)
	return b, host
}

// Q4, Q3 (finding B17): examples/gpu-tenant.yaml: four of five pods of a tenant with four GPUs run, and none of another tenant's.
func TestATenantGetsTheDevicesOfItsQuota(t *testing.T) {
	t.Parallel()
	b, host := startWithDevices(t, "--operator")
	host.kubectl(t, "apply", "-f", "../examples/gpu-tenant.yaml")
	host.kubectl(t, "wait", "--for=condition=Ready", "tenant/research", "tenant/office", "space/research", "space/office", "--timeout=90s")
	research, office := b.space(t, "research"), b.space(t, "office")
	research.apply(t, gpuDeployment(5))
	office.apply(t, gpuDeployment(1))

	research.awaitMessage(t, "exceeded quota", "requests.example.com/gpu=1", "requests.example.com/gpu=4")
	host.awaitPods(t, "berth-research", "app=train", 4)
	office.awaitMessage(t, "spec.containers[0].resources.limits[example.com/gpu]", "1 requested, but the quota of the space doesn't name requests.example.com/gpu", "ask the platform's admin")
	host.awaitPods(t, "berth-office", "app=train", 0)

	research.kubectl(t, "scale", "deployment/train", "--replicas=3")
	host.awaitPods(t, "berth-research", "app=train", 3)
	research.awaitPods(t, "default", "app=train", 3)
}

// Q4: what an admin adds to the quota of a space, or takes away, takes effect at once. Zero refuses.
func TestTheDevicesOfASpaceFollowItsQuota(t *testing.T) {
	t.Parallel()
	b, host := startWithDevices(t)
	demo := b.demo(t)
	asks := func(name string, what corev1.ResourceName, amount string) *corev1.Pod {
		return newPod(name, func(p *corev1.Pod) {
			limits := corev1.ResourceList{what: resource.MustParse(amount), corev1.ResourceCPU: resource.MustParse("10m"), corev1.ResourceMemory: resource.MustParse("16Mi")}
			p.Spec.Containers[0].Resources.Limits = limits
		})
	}
	create := func(pod *corev1.Pod) error {
		_, err := demo.CoreV1().Pods("default").Create(t.Context(), pod, metav1.CreateOptions{})
		return err
	}
	quota := func(quota string) {
		t.Helper()
		host.kubectl(t, "patch", "space", "demo", "--type=merge", "--patch", `{"spec": {"quota": `+quota+`}}`)
		generation := host.kubectl(t, "get", "space", "demo", "-o", "jsonpath={.metadata.generation}")
		host.kubectl(t, "wait", "--for=jsonpath={.status.observedGeneration}="+generation, "space/demo", "--timeout=180s")
		host.kubectl(t, "wait", "--for=condition=Ready", "space/demo", "--timeout=180s")
	}
	refused(t, "a device that no quota names", create(asks("gpu", "example.com/gpu", "1")), "spec.containers[0].resources.limits[example.com/gpu]")
	refused(t, "huge pages that no quota names", create(asks("huge", "hugepages-2Mi", "4Mi")), "requests.hugepages-2Mi")

	quota(`{"requests.example.com/gpu": "1", "requests.hugepages-2Mi": "4Mi", "requests.example.com/fpga": "0"}`)
	demo.run(t, "default", asks("gpu", "example.com/gpu", "1"))
	huge := demo.run(t, "default", asks("huge", "hugepages-2Mi", "4Mi"))
	onHost := must(host.CoreV1().Pods(hostNamespace).Get(t.Context(), hostName("default", huge.Name), metav1.GetOptions{}))(t)
	if pages := onHost.Spec.Containers[0].Resources.Limits["hugepages-2Mi"]; pages.String() != "4Mi" {
		t.Errorf("the host pod has %s of huge pages", pages.String())
	}
	refused(t, "huge pages of another size", create(asks("huger", "hugepages-1Gi", "1Gi")), "requests.hugepages-1Gi")
	if err := create(asks("none", "example.com/fpga", "1")); err == nil { // what exceeds a quota may also be refused here
		demo.awaitMessage(t, "exceeded quota", "requests.example.com/fpga=1", "limited: ")
	} else {
		refused(t, "a device of which there are none", err, "requests.example.com/fpga")
	}
	host.awaitPods(t, hostNamespace, "", 2)

	quota(`{"requests.example.com/gpu": null}`)
	refused(t, "a device that the quota no longer names", create(asks("late", "example.com/gpu", "1")), "requests.example.com/gpu")
	demo.awaitRunning(t, "default", "gpu") // what runs runs on
	if names := host.kubectl(t, "get", "namespace", hostNamespace, "-o", `jsonpath={.metadata.annotations.berth\.dev/pod-resources}`); names != "example.com/fpga,hugepages-2Mi" {
		t.Errorf("the host's policy allows %q", names)
	}
}

// Q4: pods get devices of a class that the quota names, by either name, and not one more. The host's scheduler makes the claims.
func TestPodsGetDevicesOfTheClassesThatTheQuotaNames(t *testing.T) {
	t.Parallel()
	b := start(t, configured(t, `
spaces:
- metadata: {name: demo}
  spec: {quota: {requests.deviceclass.resource.kubernetes.io/fast: "2", slow.deviceclass.resource.k8s.io/devices: "1"}}`))
	demo, host := b.demo(t), b.host(t)
	for _, class := range []string{"fast", "slow", "secret"} {
		host.apply(t, devicesOn(class, "host-node-1"))
	}
	asks := func(name, class string) *corev1.Pod {
		return newPod(name, func(p *corev1.Pod) {
			p.Labels = map[string]string{"class": class}
			p.Spec.Containers[0].Resources.Limits = corev1.ResourceList{corev1.ResourceName("deviceclass.resource.kubernetes.io/" + class): resource.MustParse("1")}
		})
	}
	create := func(pod *corev1.Pod) error {
		_, err := demo.CoreV1().Pods("default").Create(t.Context(), pod, metav1.CreateOptions{})
		return err
	}
	refused(t, "a device of a class that no quota names", create(asks("secret", "secret")), "requests.deviceclass.resource.kubernetes.io/secret")
	claims := newPod("claims", func(p *corev1.Pod) {
		p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "d", ResourceClaimName: ptr.To("d")}}
	})
	refused(t, "a claim", create(claims), "the platform doesn't sync resource claims of the space; remove them here and in the containers' resources, and request deviceclass.resource.kubernetes.io/CLASS")

	demo.run(t, "default", asks("fast-1", "fast"))
	demo.run(t, "default", asks("fast-2", "fast"))
	if err := create(asks("fast-3", "fast")); err != nil {
		refused(t, "a third device", err, "exceeded quota")
	} else {
		demo.awaitMessage(t, "exceeded quota", "requests.deviceclass.resource.kubernetes.io/fast=1", "requests.deviceclass.resource.kubernetes.io/fast=2")
	}
	host.awaitPods(t, hostNamespace, "class=fast", 2)

	demo.run(t, "default", asks("slow-1", "slow"))
	if err := create(asks("slow-2", "slow")); err != nil {
		t.Fatal(err)
	}
	demo.awaitEvent(t, "default", "Pod", "slow-2", "FailedScheduling") // this quota counts claims, which the scheduler makes
	list := must(host.ResourceV1().ResourceClaims(hostNamespace).List(t.Context(), metav1.ListOptions{}))(t)
	if len(list.Items) != 3 {
		t.Errorf("the host has %d claims of the space, want those of the 3 pods that run", len(list.Items))
	}
	demo.kubectl(t, "delete", "pod", "slow-1")
	demo.awaitRunning(t, "default", "slow-2")
}

// Q2, Q4: a tenant whose quota counts devices by the claims of their class requests them by number, in all of its spaces together. The
// host's scheduler makes the claims.
func TestATenantGetsTheClassesOfItsQuotaByNumber(t *testing.T) {
	t.Parallel()
	b := start(t, "--operator")
	host := b.host(t)
	host.apply(t, devicesOn("slow", "host-node-1"))
	host.apply(t, tenantObject("acme", "{quota: {slow.deviceclass.resource.k8s.io/devices: 1}}"))
	awaitTenant(t, host, "acme")
	host.apply(t, spaceObject("beside", "{tenantName: acme}"))
	host.kubectl(t, "wait", "--for=condition=Ready", "space/beside", "--timeout=180s")
	acme, beside := b.space(t, "acme"), b.space(t, "beside")
	asks := func(name string) *corev1.Pod {
		return newPod(name, func(p *corev1.Pod) {
			p.Spec.Containers[0].Resources.Limits = corev1.ResourceList{"deviceclass.resource.kubernetes.io/slow": resource.MustParse("1")}
		})
	}
	acme.run(t, "default", asks("first"))
	_, err := beside.CoreV1().Pods("default").Create(t.Context(), asks("second"), metav1.CreateOptions{})
	refused(t, "a second device", err, "exceeded quota: tenant acme, requested: slow.deviceclass.resource.k8s.io/devices=1, used: slow.deviceclass.resource.k8s.io/devices=1, limited: slow.deviceclass.resource.k8s.io/devices=1")
	acme.kubectl(t, "delete", "pod", "first", "--now")
	eventually(t, func() error {
		_, err := beside.CoreV1().Pods("default").Create(t.Context(), asks("second"), metav1.CreateOptions{})
		return err
	})
	beside.awaitRunning(t, "default", "second")
}
