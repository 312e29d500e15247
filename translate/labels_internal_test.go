// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package translate

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"pgregory.net/rapid"
)

// M4: a pod that a policy selects upstream is selected here: what is not is open.
func TestSelectorsMatchAsUpstreams(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		word := rapid.SampledFrom([]string{"a", "b", "c", ""})
		key := rapid.SampledFrom([]string{"x", "y", "example.com/z"})
		of := rapid.MapOf(key, word).Draw(t, "labels")
		selector := rapid.Custom(func(t *rapid.T) *metav1.LabelSelector {
			s := &metav1.LabelSelector{MatchLabels: rapid.MapOfN(key, word, 0, 2).Draw(t, "match")}
			for range rapid.IntRange(0, 3).Draw(t, "expressions") {
				e := metav1.LabelSelectorRequirement{Key: key.Draw(t, "key"), Operator: rapid.SampledFrom([]metav1.LabelSelectorOperator{
					metav1.LabelSelectorOpIn, metav1.LabelSelectorOpNotIn, metav1.LabelSelectorOpExists, metav1.LabelSelectorOpDoesNotExist,
				}).Draw(t, "operator")}
				if e.Operator == metav1.LabelSelectorOpIn || e.Operator == metav1.LabelSelectorOpNotIn {
					e.Values = rapid.SliceOfN(word, 1, 3).Draw(t, "values")
				}
				s.MatchExpressions = append(s.MatchExpressions, e)
			}
			return s
		}).Draw(t, "selector")
		upstreams, err := metav1.LabelSelectorAsSelector(selector)
		if err != nil {
			t.Fatal(err)
		}
		if got, want := selects(selector, of), upstreams.Matches(labels.Set(of)); got != want {
			t.Fatalf("%v matches %v: %t, upstream says %t", selector, of, got, want)
		}
	})
	if selects(nil, map[string]string{}) {
		t.Error("no selector selects")
	}
}

// What a pod of a namespace with a thousand policies takes of the syncer.
func BenchmarkAPodAmongPolicies(b *testing.B) {
	var policies []*networkingv1.NetworkPolicy
	for i := range 1000 {
		policies = append(policies, &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "default"}, Spec: networkingv1.NetworkPolicySpec{
			PodSelector: metav1.LabelSelector{
				MatchLabels:      map[string]string{"app": fmt.Sprintf("app-%d", i)},
				MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "tier", Operator: metav1.LabelSelectorOpIn, Values: []string{"a", "b"}}},
			},
		}})
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Labels: map[string]string{"app": "app-7", "tier": "a"}}}
	for b.Loop() {
		AddPoliced(&metav1.ObjectMeta{Labels: map[string]string{}}, pod, policies)
	}
}
