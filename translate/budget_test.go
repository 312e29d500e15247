// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package translate_test

import (
	"reflect"
	"testing"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"

	"github.com/berth-dev/berth/translate"
	"github.com/berth-dev/berth/translate/pod"
	"github.com/berth-dev/berth/translate/sample"
)

// S1, S8: a drain of the host comes to its end, whatever a tenant writes.
func TestABudgetLeavesOnePodToEvict(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := &policyv1.PodDisruptionBudget{}
		sample.Fill(t, reflect.ValueOf(v).Elem(), 8)
		v.Namespace, v.Name = "default", sample.Of(t, "name", sample.Names()...)
		v.Status.DesiredHealthy = rapid.Int32().Draw(t, "desired")
		pods := rapid.IntRange(0, 50).Draw(t, "pods")
		host := sample.Demo().Budget(v, pods)
		least := host.Spec.MinAvailable
		if least == nil || least.Type != intstr.Int || least.IntVal < 0 || pods > 0 && int(least.IntVal) >= pods || host.Spec.MaxUnavailable != nil {
			t.Fatalf("of %d pods, %v must stay, or all but %v", pods, least, host.Spec.MaxUnavailable)
		}
		if want := min(int(v.Status.DesiredHealthy), pods-1); want > 0 && int(least.IntVal) != want {
			t.Fatalf("of %d pods, %v must stay, want %d", pods, least, want)
		}
		if ptr.Deref(host.Spec.UnhealthyPodEvictionPolicy, "") != policyv1.AlwaysAllow {
			t.Fatal("pods that are not ready could hold back a drain")
		}
		want := map[string]string{translate.LabelSpace: "demo", translate.LabelBudget: host.Name}
		if !reflect.DeepEqual(host.Spec.Selector, &metav1.LabelSelector{MatchLabels: want}) {
			t.Fatalf("selects %v", host.Spec.Selector)
		}
	})
}

// A host evicts no pod that is under two budgets: a tenant could write a second.
func TestAPodIsUnderOneBudgetAtMost(t *testing.T) {
	budget := func(namespace, name string, selector *metav1.LabelSelector) *policyv1.PodDisruptionBudget {
		return &policyv1.PodDisruptionBudget{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: policyv1.PodDisruptionBudgetSpec{Selector: selector},
		}
	}
	web := &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
	cases := map[string]struct {
		reason  string
		budgets []*policyv1.PodDisruptionBudget
		want    string
	}{
		"none":      {"nothing is asked for", nil, ""},
		"two":       {"the first by name", []*policyv1.PodDisruptionBudget{budget("default", "b", web), budget("default", "a", &metav1.LabelSelector{})}, "demo--default--a"},
		"elsewhere": {"budgets are of a namespace", []*policyv1.PodDisruptionBudget{budget("shop", "a", web)}, ""},
		"nil":       {"it selects nothing", []*policyv1.PodDisruptionBudget{budget("default", "a", nil)}, ""},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			v := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "x", Labels: map[string]string{"app": "web", translate.LabelBudget: "mine"}}}
			host := pod.ToHost(sample.Demo(), v, sample.Surroundings{Budgets: tc.budgets})
			if host.Labels[translate.LabelBudget] != tc.want {
				t.Errorf("%s: under %q, want %q", tc.reason, host.Labels[translate.LabelBudget], tc.want)
			}
		})
	}
}
