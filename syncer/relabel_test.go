// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package syncer_test

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/pod-security-admission/api"

	"github.com/berth-dev/berth/translate"
)

// S13, D1: after an upgrade that maps labels otherwise, a Service keeps the pods that run, also those that a newer rule forbids.
func TestAPodThatANewRuleForbidsKeepsItsService(t *testing.T) {
	t.Parallel()
	b := newBed(t, "relabelled")
	b.begin(nil)
	selector := map[string]string{"tiers.example.com/tier": "web"}
	service := newService("web", "")
	service.Spec.Selector = selector
	must(t, b.virtual.CoreV1().Services("default").Create, service)
	v := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "nginx"}}}}
	v.Name, v.Labels = "web", selector
	must(t, b.virtual.CoreV1().Pods("default").Create, v)
	pods, services := b.host.CoreV1().Pods(b.space.HostNamespace()), b.host.CoreV1().Services(b.space.HostNamespace())
	serviceName := b.space.HostName("default", "web", translate.LimitLabel)
	old := awaited(t, "the host pod", pods.Get, b.hostName("web"), nil)
	awaited(t, "the host service", services.Get, serviceName, nil)
	if _, ok := old.Labels["tiers.example.com/tier"]; !ok {
		t.Fatalf("the pod has the labels %v", old.Labels)
	}

	if err := b.kill(); err != nil {
		t.Fatal(err)
	}
	b.space.Settings.ReservedLabels = []string{"tiers.example.com"}
	b.space.Settings.PodSecurity.Level = api.LevelRestricted // the pod may run as root
	b.build(t)
	b.begin(nil)
	b.told(t, "Pod", "web", "runAsNonRoot")
	found := awaited(t, "the host service's new selector", services.Get, serviceName, func(s *corev1.Service) error {
		if _, ok := s.Spec.Selector["tiers.example.com/tier"]; ok {
			return fmt.Errorf("it selects %v", s.Spec.Selector)
		}
		return nil
	})
	now := awaited(t, "the host pod that the service selects", pods.Get, b.hostName("web"), func(p *corev1.Pod) error {
		if !labels.SelectorFromSet(found.Spec.Selector).Matches(labels.Set(p.Labels)) {
			return fmt.Errorf("labels %v, selector %v", p.Labels, found.Spec.Selector)
		}
		return nil
	})
	if now.UID != old.UID {
		t.Error("the pod is another one")
	}
	if _, ok := now.Labels["tiers.example.com/tier"]; ok {
		t.Errorf("a reserved label is left: %v", now.Labels)
	}
}
