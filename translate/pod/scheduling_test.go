// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package pod_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"

	"github.com/berth-dev/berth/translate"
	"github.com/berth-dev/berth/translate/pod"
	"github.com/berth-dev/berth/translate/sample"
)

func matches(t *rapid.T, selector *metav1.LabelSelector, set map[string]string) bool {
	s, err := metav1.LabelSelectorAsSelector(selector)
	if err != nil {
		t.Fatalf("selector %v: %v", selector, err)
	}
	return s.Matches(labels.Set(set))
}

// anySelector draws a selector of the tenant's, nil (nothing) and empty
// (everything) ones among them.
func anySelector(t *rapid.T, label string) *metav1.LabelSelector {
	value := func() []string { return []string{sample.Of(t, label+" value", "web", "db")} }
	return sample.Of(t, label, nil, &metav1.LabelSelector{},
		&metav1.LabelSelector{MatchLabels: map[string]string{"app": value()[0]}},
		&metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: metav1.LabelSelectorOpNotIn, Values: value()}}},
		&metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: metav1.LabelSelectorOpDoesNotExist}}},
		&metav1.LabelSelector{MatchLabels: map[string]string{"app": "no-such"}},
	)
}

func anyLabels(t *rapid.T, label string) map[string]string {
	return sample.Of(t, label, nil, map[string]string{"app": "web"}, map[string]string{"app": "db"})
}

// S4: a term between pods means on the host, where all of a space's pods are in
// one namespace, what it meant in the space; pods of other spaces it never means.
func TestAnAffinityTermMeansTheSamePodsOnTheHost(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := sample.PlainPod()
		v.Namespace = sample.Of(t, "namespace", "default", "team-a")
		term := corev1.PodAffinityTerm{
			TopologyKey: "kubernetes.io/hostname", LabelSelector: anySelector(t, "selector"), NamespaceSelector: anySelector(t, "namespace selector"),
			Namespaces: sample.Of(t, "namespaces", nil, []string{"default"}, []string{"team-a", "team-b"}),
		}
		weighted := []corev1.WeightedPodAffinityTerm{{Weight: 1, PodAffinityTerm: term}}
		v.Spec.Affinity = &corev1.Affinity{
			PodAffinity:     &corev1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{term}, PreferredDuringSchedulingIgnoredDuringExecution: weighted},
			PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{term}, PreferredDuringSchedulingIgnoredDuringExecution: weighted},
		}
		var in sample.Surroundings
		for _, name := range []string{"default", "team-a", "team-b"} {
			in.Namespaces = append(in.Namespaces, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: anyLabels(t, "labels of "+name)}})
		}
		terms := sample.FindAll[corev1.PodAffinityTerm](pod.ToHost(sample.Demo(), v, in).Spec.Affinity)
		if len(terms) != 4 {
			t.Fatalf("4 terms became %d", len(terms))
		}

		for _, namespace := range []string{"default", "team-a", "team-b"} {
			for _, set := range []map[string]string{nil, {"app": "web"}, {"app": "db"}} {
				other := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "other", Labels: set}}
				checkTerms(t, v, &term, in, other, terms)
			}
		}
	})
}

func checkTerms(t *rapid.T, v *corev1.Pod, term *corev1.PodAffinityTerm, in sample.Surroundings, other *corev1.Pod, terms map[string]corev1.PodAffinityTerm) {
	meant := slices.Contains(term.Namespaces, other.Namespace) || (len(term.Namespaces) == 0 && term.NamespaceSelector == nil && other.Namespace == v.Namespace)
	for _, namespace := range in.Namespaces {
		meant = meant || (namespace.Name == other.Namespace && matches(t, term.NamespaceSelector, namespace.Labels))
	}
	meant = meant && matches(t, term.LabelSelector, other.Labels)
	for path, got := range terms {
		if found := matches(t, got.LabelSelector, pod.ToHost(sample.Demo(), other, sample.Surroundings{}).Labels); found != meant {
			t.Fatalf("%s: in the space it means pods %v of %s: %v; on the host: %v, by %v", path, other.Labels, other.Namespace, meant, found, got.LabelSelector)
		}
		if foreign := pod.ToHost((translate.Space{Name: "demo-2"}), other, sample.Surroundings{}); matches(t, got.LabelSelector, foreign.Labels) {
			t.Fatalf("%s means a pod of another space, by %v", path, got.LabelSelector)
		}
		if got.TopologyKey != term.TopologyKey {
			t.Fatalf("%s is about %q", path, got.TopologyKey)
		}
	}
}

func TestSelectorNarrowsToTheSpaceAndItsNamespaces(t *testing.T) {
	inSpace := metav1.LabelSelectorRequirement{Key: "berth.dev/space", Operator: metav1.LabelSelectorOpIn, Values: []string{"demo"}}
	cases := map[string]struct {
		reason     string
		selector   *metav1.LabelSelector
		namespaces []string
		want       *metav1.LabelSelector
	}{
		"Nil": {"a nil selector selects nothing, and must not begin to", nil, []string{"default"}, nil},
		"Empty": {
			"an empty selector selects everything, of the namespaces", &metav1.LabelSelector{}, []string{"a", "b"},
			&metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
				inSpace, {Key: "berth.dev/namespace", Operator: metav1.LabelSelectorOpIn, Values: []string{"a", "b"}},
			}},
		},
		"Kept": {
			"the tenant's own requirements stay", &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}, []string{"a"},
			&metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}, MatchExpressions: []metav1.LabelSelectorRequirement{
				inSpace, {Key: "berth.dev/namespace", Operator: metav1.LabelSelectorOpIn, Values: []string{"a"}},
			}},
		},
		"NoNamespace": {
			"a namespace selector that matches none selects nothing", &metav1.LabelSelector{}, nil,
			&metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
				inSpace, {Key: "berth.dev/space", Operator: metav1.LabelSelectorOpDoesNotExist},
			}},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			before := tc.selector.DeepCopy()
			if diff := cmp.Diff(tc.want, sample.Demo().Selector(tc.selector, tc.namespaces...)); diff != "" {
				t.Errorf("%s: -want +got:\n%s", tc.reason, diff)
			}
			if diff := cmp.Diff(before, tc.selector); diff != "" {
				t.Errorf("the argument changed: -before +after:\n%s", diff)
			}
		})
	}
}

// S4, N1: pods are spread among pods of their namespace; nothing is asked about
// the nodes themselves.
func TestTopologySpreadIsAmongThePodsOfTheNamespace(t *testing.T) {
	v := sample.PlainPod()
	v.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{
		MaxSkew: 2, MinDomains: ptr.To[int32](3), TopologyKey: "topology.kubernetes.io/zone", WhenUnsatisfiable: corev1.DoNotSchedule,
		LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"run": "web"}}, MatchLabelKeys: []string{"pod-template-hash"},
		NodeAffinityPolicy: ptr.To(corev1.NodeInclusionPolicyIgnore), NodeTaintsPolicy: ptr.To(corev1.NodeInclusionPolicyHonor),
	}}
	want := []corev1.TopologySpreadConstraint{{
		MaxSkew: 2, MinDomains: ptr.To[int32](3), TopologyKey: "topology.kubernetes.io/zone", WhenUnsatisfiable: corev1.DoNotSchedule,
		LabelSelector: sample.Demo().Selector(v.Spec.TopologySpreadConstraints[0].LabelSelector, "default"),
	}}
	if diff := cmp.Diff(want, pod.ToHost(sample.Demo(), v, sample.Surroundings{}).Spec.TopologySpreadConstraints); diff != "" {
		t.Errorf("constraints: -want +got:\n%s", diff)
	}
}

// M2: tolerations open nodes that were set apart; only those of failing nodes
// are a tenant's to choose.
func TestOnlyTolerationsOfFailingNodesReachTheHost(t *testing.T) {
	cases := map[string]struct {
		reason string
		in     corev1.Toleration
		kept   bool
	}{
		"NotReady": {
			"how long to stay on a failing node is the tenant's to say",
			corev1.Toleration{Key: "node.kubernetes.io/not-ready", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: ptr.To[int64](5)}, true,
		},
		"Unreachable":  {"the same", corev1.Toleration{Key: "node.kubernetes.io/unreachable", Operator: corev1.TolerationOpExists}, true},
		"Everything":   {"no key tolerates every taint", corev1.Toleration{Operator: corev1.TolerationOpExists}, false},
		"Dedicated":    {"nodes set apart are not the tenant's", corev1.Toleration{Key: "dedicated", Operator: corev1.TolerationOpEqual, Value: "gpu"}, false},
		"ControlPlane": {"nor are those of the control plane", corev1.Toleration{Key: "node-role.kubernetes.io/control-plane", Operator: corev1.TolerationOpExists}, false},
		"Pressure":     {"nor those short of memory", corev1.Toleration{Key: "node.kubernetes.io/memory-pressure", Operator: corev1.TolerationOpExists}, false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			v := sample.PlainPod()
			v.Spec.Tolerations = []corev1.Toleration{tc.in}
			var want []corev1.Toleration
			if tc.kept {
				want = v.Spec.Tolerations
			}
			if diff := cmp.Diff(want, pod.ToHost(sample.Demo(), v, sample.Surroundings{}).Spec.Tolerations); diff != "" {
				t.Errorf("%s: -want +got:\n%s", tc.reason, diff)
			}
		})
	}
}
