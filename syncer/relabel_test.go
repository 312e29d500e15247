// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package syncer_test

import (
	"errors"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/pod-security-admission/api"

	"github.com/berth-dev/berth/translate"
)

// S13, D1: after an upgrade that maps labels otherwise, a Service keeps the pods that run, also those that a newer rule forbids.
func TestAPodThatANewRuleForbidsKeepsItsService(t *testing.T) {
	t.Parallel()
	env := newEnv(t, "relabelled")
	env.begin(nil)
	selector := map[string]string{"tiers.example.com/tier": "web"}
	service := newService("web", "")
	service.Spec.Selector = selector
	must(t, env.virtual.CoreV1().Services("default").Create, service)
	v := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "nginx"}}}}
	v.Name, v.Labels = "web", selector
	must(t, env.virtual.CoreV1().Pods("default").Create, v)
	pods, services := env.host.CoreV1().Pods(env.space.HostNamespace()), env.host.CoreV1().Services(env.space.HostNamespace())
	serviceName := env.space.HostName("default", "web", translate.LimitLabel)
	old := awaited(t, "the host pod", pods.Get, env.hostName("web"), nil)
	awaited(t, "the host service", services.Get, serviceName, nil)
	if _, ok := old.Labels["tiers.example.com/tier"]; !ok {
		t.Fatalf("the pod has the labels %v", old.Labels)
	}

	if err := env.kill(); err != nil {
		t.Fatal(err)
	}
	env.space.Settings.ReservedLabels = []string{"tiers.example.com"}
	env.space.Settings.PodSecurity.Level = api.LevelRestricted // the pod may run as root
	env.build(t)
	env.begin(nil)
	env.awaitWarning(t, "Pod", "web", "runAsNonRoot")
	found := awaited(t, "the host service's new selector", services.Get, serviceName, func(s *corev1.Service) error {
		if _, ok := s.Spec.Selector["tiers.example.com/tier"]; ok {
			return fmt.Errorf("it selects %v", s.Spec.Selector)
		}
		return nil
	})
	now := awaited(t, "the host pod that the service selects", pods.Get, env.hostName("web"), func(p *corev1.Pod) error {
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

// S13, D1: after such an upgrade a Service that a newer rule forbids keeps its pods, too.
func TestAServiceThatANewRuleForbidsKeepsItsPods(t *testing.T) {
	t.Parallel()
	env := newEnv(t, "reselected")
	env.begin(nil)
	ours, theirs := env.virtual.CoreV1().Services("default"), env.host.CoreV1().Services(env.space.HostNamespace())
	serviceName := env.space.HostName("default", "web", translate.LimitLabel)
	service := newService("web", "")
	service.Spec.Selector = map[string]string{"tiers.example.com/tier": "web"}
	must(t, ours.Create, service)
	old := awaited(t, "the host service", theirs.Get, serviceName, nil)
	if _, ok := old.Spec.Selector["tiers.example.com/tier"]; !ok {
		t.Fatalf("the service selects %v", old.Spec.Selector)
	}

	if err := env.kill(); err != nil {
		t.Fatal(err)
	}
	// The space has no rule against it yet.
	rules := env.config.Admission
	env.config.Admission = nil
	if err := errors.Join(env.stopPlane(t.Context()), env.startPlane(t.Context())); err != nil {
		t.Fatal(err)
	}
	_, err := ours.Patch(t.Context(), "web", types.MergePatchType, []byte(`{"spec":{"externalIPs":["192.0.2.1"]}}`), metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	env.config.Admission = rules
	if err := errors.Join(env.stopPlane(t.Context()), env.startPlane(t.Context())); err != nil {
		t.Fatal(err)
	}
	env.space.Settings.ReservedLabels = []string{"tiers.example.com"}
	env.begin(nil)
	env.awaitWarning(t, "Service", "web", "spec.externalIPs")
	now := awaited(t, "the host service's new selector", theirs.Get, serviceName, func(s *corev1.Service) error {
		if _, ok := s.Spec.Selector["tiers.example.com/tier"]; ok || len(s.Spec.Selector) != len(old.Spec.Selector) {
			return fmt.Errorf("it selects %v", s.Spec.Selector)
		}
		return nil
	})
	if now.UID != old.UID || len(now.Spec.ExternalIPs) > 0 || now.Spec.Selector[translate.LabelSpace] != env.space.Name {
		t.Errorf("got %v, was %v", now.Spec, old.Spec)
	}
}
