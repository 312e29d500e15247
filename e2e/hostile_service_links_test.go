// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
)

func wideService(name string, ports int) *corev1.Service {
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.ServiceSpec{Selector: map[string]string{"app": "x"}}}
	for i := range ports {
		service.Spec.Ports = append(service.Spec.Ports, corev1.ServicePort{Name: fmt.Sprintf("port-%d", i), Port: int32(i + 1)})
	}
	return service
}

func widePod(name string, containers int) *corev1.Pod {
	pod := newPod(name, func(p *corev1.Pod) { p.Spec.Containers = nil })
	little := corev1.ResourceList{} // so that the space's quota is no hindrance
	for resourceName, amount := range map[corev1.ResourceName]string{corev1.ResourceCPU: "1m", corev1.ResourceMemory: "1Mi", corev1.ResourceEphemeralStorage: "1Mi"} {
		little[resourceName] = resource.MustParse(amount)
	}
	for i := range containers {
		pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{
			Name: fmt.Sprintf("c%d", i), Image: "nginx", Resources: corev1.ResourceRequirements{Limits: little},
		})
	}
	return pod
}

// L3, M4 (S1): every port of every Service is in the environment of every
// container. Twelve Services of 9,000 ports, and one pod of 200 containers, once
// took 5 GiB and every space with them.
func TestHostileServiceLinksDoNotGrowTheProcess(t *testing.T) {
	t.Parallel()
	// The bound of all ports together is not what keeps this attack away.
	b := startLimited(t, "--space", "attacker", "--space", "quiet", configured(t, "spaces: [{metadata: {name: attacker}, spec: {limits: {service-ports-total: 5000}}}]"))
	attacker, quiet := b.space(t, "attacker"), b.space(t, "quiet")
	ns := attacker.namespace(t, "wide")

	// The other space answers throughout.
	ctx, cancel := context.WithCancel(t.Context())
	answers := make(chan error, 1)
	go func() {
		err := wait.PollUntilContextCancel(ctx, interval, true, func(context.Context) (bool, error) {
			_, err := quiet.CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{})
			return false, err
		})
		if ctx.Err() != nil {
			err = nil
		}
		answers <- err
	}()

	// A pod of a usual size has the variables of a usual namespace.
	usual := attacker.namespace(t, "usual")
	if _, err := attacker.CoreV1().Services(usual).Create(t.Context(), wideService("db", 100), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	attacker.run(t, usual, newPod("usual"))
	host := await(t, b.host(t).CoreV1().Pods("berth-attacker").Get, "attacker--usual--usual", there)
	if env := len(host.Spec.Containers[0].Env); env < 500 {
		t.Errorf("a usual pod has %d variables", env)
	}

	for i := range 12 {
		_, err := attacker.CoreV1().Services(ns).Create(t.Context(), wideService(fmt.Sprintf("wide-%d", i), 9000), metav1.CreateOptions{})
		if err == nil || !strings.Contains(err.Error(), "spec.ports: Invalid value: 9000: 9000 ports, at most 100 are possible (limit service-ports)") {
			t.Errorf("a service of 9,000 ports: %v", err)
		}
	}
	for i := range 30 {
		if _, err := attacker.CoreV1().Services(ns).Create(t.Context(), wideService(fmt.Sprintf("allowed-%d", i), 100), metav1.CreateOptions{}); err != nil {
			t.Error(err)
		}
	}
	for i := range 4 {
		name := fmt.Sprintf("wide-%d", i)
		if _, err := attacker.CoreV1().Pods(ns).Create(t.Context(), widePod(name, 200), metav1.CreateOptions{}); err != nil {
			t.Error(err)
		}
		event := attacker.awaitEvent(t, ns, "Pod", name, "ServiceLinksLeftOut")
		if !strings.Contains(event.Message, "limit service-link-variables") || !strings.Contains(event.Message, "enableServiceLinks: false") {
			t.Errorf("the tenant is told: %s", event.Message)
		}
	}
	if _, err := attacker.CoreV1().Pods(ns).Create(t.Context(), widePod("too-wide", 300), metav1.CreateOptions{}); err == nil ||
		!strings.Contains(err.Error(), "spec.containers: Invalid value: 300") {
		t.Errorf("a pod of 300 containers: %v", err)
	}
	large := newPod("large", func(p *corev1.Pod) { p.Spec.Containers[0].Args = []string{strings.Repeat("x", 1100<<10)} })
	if _, err := attacker.CoreV1().Pods(ns).Create(t.Context(), large, metav1.CreateOptions{}); err == nil || !strings.Contains(err.Error(), "limit pod-bytes") {
		t.Errorf("a pod of more than a MiB: %v", err)
	}

	cancel()
	if err := <-answers; err != nil {
		t.Errorf("the other space: %v", err)
	}
	b.checkSmall(t)
}
