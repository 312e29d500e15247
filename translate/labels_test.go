// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package translate_test

import (
	"maps"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"
	"pgregory.net/rapid"

	"github.com/berth-dev/berth/translate"
	"github.com/berth-dev/berth/translate/pod"
	"github.com/berth-dev/berth/translate/sample"
)

// M4 (S13): labels by which the host's controllers, networks, and webhooks are
// steered do not reach host pods under their own names; those for people do.
func TestHostileLabelsThatSteerTheHostAreMapped(t *testing.T) {
	space := sample.Demo()
	space.Settings.ReservedLabels = []string{"admin.example.com", "team-", "corp.", "whole.example.com/key"}
	kept := map[string]bool{"app": true, "app.kubernetes.io/name": true, "app.kubernetes.io/part-of": true, "example.com/tier": true, "pod-template-hash": true, "istio.io": true,
		"notistio.io/rev": true, "whole.example.com/other": true, "pcnsx": true, "corporate": true}
	mapped := []string{
		"berth.dev/space", "berth.dev/network-policies", "label.berth.dev/app", "pcns.berth.dev/space", "pcns.projectcalico.org/name", "pcns.kubernetes.io/metadata.name", "pcns.team",
		"pcsa.projectcalico.org/name", "projectcalico.org/namespace", "io.cilium.k8s.namespace.labels.x", "io.kubernetes.pod.namespace",
		"sidecar.istio.io/inject", "istio.io/rev", "security.istio.io/tlsMode", "linkerd.io/inject", "argocd.argoproj.io/instance", "app.kubernetes.io/instance",
		"topology.kubernetes.io/zone", "topology.kubernetes.io/region", "kubernetes.io/metadata.name", "node.kubernetes.io/instance-type", "kueue.x-k8s.io/queue-name",
		"azure.workload.identity/use", "eks.amazonaws.com/fargate-profile", "spiffe.io/spiffe-id", "admission.datadoghq.com/enabled",
		"admin.example.com/x", "sub.admin.example.com/x", "corp.team", "whole.example.com/key",
	}
	v := sample.PlainPod()
	v.Labels = map[string]string{}
	for key := range kept {
		v.Labels[key] = "mine"
	}
	for _, key := range mapped {
		v.Labels[key] = "mine"
	}
	host := pod.ToHost(space, v, sample.Surroundings{})
	mine := 0
	for key, value := range host.Labels {
		if value != "mine" {
			continue
		}
		mine++
		if problems := validation.IsQualifiedName(key); len(problems) > 0 {
			t.Errorf("%s is no key: %v", key, problems)
		}
		if own := strings.HasPrefix(key, "label.berth.dev/") || key == "berth.dev/zone" || key == "berth.dev/region"; !own && !kept[key] {
			t.Errorf("%s is on the host under its own name", key)
		}
	}
	if mine != len(v.Labels) {
		t.Errorf("%d of %d labels are on the host", mine, len(v.Labels))
	}
	for key := range kept {
		if host.Labels[key] != "mine" {
			t.Errorf("%s is not on the host", key)
		}
	}
	for _, key := range mapped {
		if host.Labels[key] == "mine" && key != "label.berth.dev/app" {
			t.Errorf("%s is on the host under its own name", key)
		}
	}
	if host.Labels[translate.LabelSpace] != "demo" || host.Labels["label.berth.dev/app"] != "" {
		t.Errorf("a label of Berth's is the tenant's: %v", host.Labels)
	}
}

// S1, S13: a selector selects on the host what it selects in the space, whatever
// keys it names.
func TestSelectorsFollowLabelsThatAreMapped(t *testing.T) {
	keys := []string{"app", "istio.io/rev", "istio.io.rev", "app.kubernetes.io/instance", "app.kubernetes.io/name", "pcns.team", "berth.dev/space", "label.berth.dev/app", "topology.kubernetes.io/zone", "berth.dev/zone"}
	rapid.Check(t, func(t *rapid.T) {
		draw := rapid.MapOfN(rapid.SampledFrom(keys), rapid.SampledFrom([]string{"a", "b"}), 0, 4)
		v := sample.PlainPod()
		v.Labels = draw.Draw(t, "labels")
		selector := &metav1.LabelSelector{MatchLabels: rapid.MapOfN(rapid.SampledFrom(keys), rapid.SampledFrom([]string{"a", "b"}), 0, 2).Draw(t, "match")}
		for range rapid.IntRange(0, 2).Draw(t, "expressions") {
			selector.MatchExpressions = append(selector.MatchExpressions, metav1.LabelSelectorRequirement{
				Key: sample.Of(t, "key", keys...), Operator: sample.Of(t, "operator", metav1.LabelSelectorOpExists, metav1.LabelSelectorOpDoesNotExist),
			})
		}
		inSpace, err := metav1.LabelSelectorAsSelector(selector)
		if err != nil {
			t.Fatal(err)
		}
		host := pod.ToHost(sample.Demo(), v, sample.Surroundings{})
		onHost, err := metav1.LabelSelectorAsSelector(sample.Demo().Selector(selector, v.Namespace))
		if err != nil {
			t.Fatal(err)
		}
		want := inSpace.Matches(labels.Set(v.Labels))
		if got := onHost.Matches(labels.Set(host.Labels)); got != want {
			t.Fatalf("%v selects %v in the space: %t; on the host, %v: %t", selector, v.Labels, want, host.Labels, got)
		}
		service := sample.Wide("a", 1)
		if service.Spec.Selector = maps.Clone(selector.MatchLabels); len(service.Spec.Selector) == 0 {
			return
		}
		want = labels.SelectorFromSet(service.Spec.Selector).Matches(labels.Set(v.Labels))
		if got := labels.SelectorFromSet(sample.Demo().Service(service).Spec.Selector).Matches(labels.Set(host.Labels)); got != want {
			t.Fatalf("a service of %v selects %v in the space: %t; on the host %t", service.Spec.Selector, v.Labels, want, got)
		}
	})
}
