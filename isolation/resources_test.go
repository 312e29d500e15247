// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package isolation_test

import (
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"

	"github.com/berth-dev/berth/isolation"
	"github.com/berth-dev/berth/isolation/hostpolicy"
	"github.com/berth-dev/berth/syncer/resources"
)

// M4: of each resource that spaces' accounts may write, the host holds them to the fields that Berth writes.
func TestTheHostHoldsAccountsToTheFieldsOfEachResource(t *testing.T) {
	policy := isolation.AccountPolicy()
	for _, r := range resources.Table() {
		if r.Direction != resources.ToHost || r.InCluster || r.Name == resources.Pods { // classes and pods have policies of their own
			continue
		}
		if !slices.ContainsFunc(policy.Validations, func(v admissionv1.Validation) bool {
			return strings.HasPrefix(v.Message, hostpolicy.OnlyFields+r.Name+":")
		}) {
			t.Errorf("an account may write any field of %s: name the fields in isolation/hostpolicy", r.Name)
		}
		if !slices.ContainsFunc(policy.MatchConstraints.ResourceRules, func(rule admissionv1.NamedRuleWithOperations) bool {
			return slices.Contains(rule.APIGroups, r.GVR().Group) && slices.Contains(rule.Resources, r.GVR().Resource) && len(rule.Operations) == 3
		}) {
			t.Errorf("the policy is not asked about %s", r.Name)
		}
	}
}
