// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package views

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/utils/clock"

	"github.com/berth-dev/berth/bounds"
)

func policyOf(rules, combinations, validations, variables, bytes int) *admissionv1.ValidatingAdmissionPolicy {
	var names []string
	for i := range combinations {
		names = append(names, fmt.Sprintf("r%d", i))
	}
	rule := admissionv1.NamedRuleWithOperations{RuleWithOperations: admissionv1.RuleWithOperations{Rule: admissionv1.Rule{
		APIGroups: []string{"apps"}, APIVersions: []string{"v1"}, Resources: names}}}
	text := strings.Repeat("x", bytes)
	return &admissionv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "p", Generation: 2}, Spec: admissionv1.ValidatingAdmissionPolicySpec{
		MatchConstraints: &admissionv1.MatchResources{ResourceRules: slices.Repeat([]admissionv1.NamedRuleWithOperations{rule}, rules)},
		Validations:      slices.Repeat([]admissionv1.Validation{{Expression: text, MessageExpression: text}}, validations),
		Variables:        slices.Repeat([]admissionv1.Variable{{Name: "a", Expression: text}}, variables),
	}}
}

// L3: one policy with 500 expressions and 500 variables kept its controller busy for hours, and so did a rule with a million
// combinations of groups, versions, and resources.
func TestHostilePoliciesAreNotCheckedForHours(t *testing.T) {
	many := policyOf(1, 1000, 1, 0, 20)
	many.Spec.MatchConstraints.ResourceRules[0].APIGroups = many.Spec.MatchConstraints.ResourceRules[0].Resources
	seen := policyOf(1, 1, 500, 500, 20)
	seen.Status.ObservedGeneration = seen.Generation
	for name, c := range map[string]struct {
		policy  *admissionv1.ValidatingAdmissionPolicy
		checked bool
	}{
		"small":               {policyOf(3, 2, 10, 10, 100), true},
		"many types":          {policyOf(100, 9, 1, 0, 20), false},
		"many validations":    {policyOf(1, 10, 500, 0, 20), false},
		"many variables":      {policyOf(1, 10, 10, 500, 20), false},
		"long":                {policyOf(1, 1, 1, 100, 8000), false},
		"many combinations":   {many, false},
		"checked before":      {seen, true},
		"without constraints": {&admissionv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "p", Generation: 1}, Spec: admissionv1.ValidatingAdmissionPolicySpec{Validations: seen.Spec.Validations}}, true},
	} {
		t.Run(name, func(t *testing.T) {
			informer := informers.NewSharedInformerFactory(fake.NewClientset(), 0).Admissionregistration().V1().ValidatingAdmissionPolicies()
			if err := informer.Informer().GetIndexer().Add(c.policy); err != nil {
				t.Fatal(err)
			}
			pace := NewPace(t.Context(), clock.RealClock{}, NewShare(bounds.NewAccount(nil)))
			got, err := CheckedPolicies{informer, pace}.Lister().Get("p")
			if err != nil || got.Generation != c.policy.Generation || c.checked != (len(got.Spec.Validations) > 0) || len(c.policy.Spec.Validations) == 0 {
				t.Errorf("%d validations left, %v", len(got.Spec.Validations), err)
			}
		})
	}
}
