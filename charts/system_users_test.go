// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package charts

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// M4, U3: Berth may impersonate exactly the system users and groups that the admin names, and nobody by default.
func TestBerthImpersonatesOnlyWhomTheChartNames(t *testing.T) {
	impersonates := func(objects []runtime.Object) (rules []rbacv1.PolicyRule) {
		role := find(t, objects, func(r *rbacv1.ClusterRole) bool { return r.Name == "platform-berth" })
		for _, rule := range role.Rules {
			if slices.Contains(rule.Verbs, "impersonate") {
				rules = append(rules, rule)
			}
		}
		return rules
	}
	rule := func(resource string, names ...string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{resource}, ResourceNames: names, Verbs: []string{"impersonate"}}
	}
	for reason, test := range map[string]struct {
		values []string
		want   []rbacv1.PolicyRule
	}{
		"the default":       {nil, nil},
		"lists of none":     {[]string{"clients.systemUsers=null", "clients.systemGroups=null"}, nil},
		"a user":            {[]string{"clients.systemUsers={olga}"}, []rbacv1.PolicyRule{rule("users", "olga")}},
		"users with groups": {[]string{"clients.systemUsers={olga,*@example.com}", "clients.systemGroups={operators}"}, []rbacv1.PolicyRule{rule("users", "olga", "*@example.com"), rule("groups", "operators")}},
	} {
		if diff := cmp.Diff(test.want, impersonates(render(t, test.values...))); diff != "" {
			t.Errorf("%s: %s", reason, diff)
		}
	}
}
