// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package tenantaccess_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berth-dev/berth/api/space/v1alpha1"
	"github.com/berth-dev/berth/vcluster/tenantaccess"
)

// Z5: errors name the field and the value, and say what to do.
func TestErrorsNameTheFieldTheValueAndTheRemedy(t *testing.T) {
	many := slices.Repeat([]string{"x"}, 65)
	for reason, c := range map[string]struct {
		change func(*v1alpha1.TenantAccessSpec)
		want   string
	}{
		"valid": {func(*v1alpha1.TenantAccessSpec) {}, ""},
		"everything": {func(s *v1alpha1.TenantAccessSpec) {
			s.Rules[0] = v1alpha1.TenantAccessRule{Verbs: []string{"*"}, APIGroups: []string{"*"}, Resources: []string{"*"}}
		}, ""},
		"nobody":    {func(s *v1alpha1.TenantAccessSpec) { s.Subjects = nil }, "spec.subjects: Required value: name at least one tenant"},
		"nothing":   {func(s *v1alpha1.TenantAccessSpec) { s.Rules = nil }, "spec.rules: Required value: name at least one right"},
		"no tenant": {func(s *v1alpha1.TenantAccessSpec) { s.Subjects[0].Tenant = "A B" }, `spec.subjects[0].tenant: Invalid value: "A B": `},
		"a year of five digits, in UTC": {func(s *v1alpha1.TenantAccessSpec) {
			s.ExpirationTime = &metav1.Time{Time: time.Date(9999, 12, 31, 23, 59, 0, 0, time.FixedZone("", -3600))}
		}, "spec.expirationTime: Invalid value: "},
		"the system":       {func(s *v1alpha1.TenantAccessSpec) { s.Subjects[0].Tenant = "system" }, "give them rights with a RoleBinding"},
		"an empty user":    {func(s *v1alpha1.TenantAccessSpec) { s.Subjects[0].Users = []string{""} }, "spec.subjects[0].users[0]: Required value: it is empty; remove the item"},
		"many users":       {func(s *v1alpha1.TenantAccessSpec) { s.Subjects[0].Users = many }, "spec.subjects[0].users: Too many: 65: must have at most 64 items"},
		"impersonation":    {func(s *v1alpha1.TenantAccessSpec) { s.Rules[0].Verbs = []string{"impersonate-on:user-info:get"} }, `spec.rules[0].verbs[0]: Invalid value: "impersonate-on:user-info:get": users of other tenants can't act as users of this one`},
		"no group":         {func(s *v1alpha1.TenantAccessSpec) { s.Rules[0].APIGroups = nil }, `spec.rules[0].apiGroups: Required value: use "" for the core group`},
		"all subresources": {func(s *v1alpha1.TenantAccessSpec) { s.Rules[0].Resources = []string{"pods/*"} }, `spec.rules[0].resources[0]: Invalid value: "pods/*": name each subresource`},
		"a pattern":        {func(s *v1alpha1.TenantAccessSpec) { s.Rules[0].Namespaces = []string{"web-*"} }, `spec.rules[0].namespaces[0]: Invalid value: "web-*"`},
		"many combinations": {func(s *v1alpha1.TenantAccessSpec) {
			s.Rules[0].Verbs, s.Rules[0].Namespaces = slices.Repeat([]string{"get"}, 18), slices.Repeat([]string{"web"}, 20)
		}, "spec.rules: Invalid value: 1080: the rules have so many combinations of verbs, API groups, resources, names, and namespaces, and may have 1024; use several objects"},
		"a large annotation": {nil, "remove annotations, or use several objects"},
	} {
		a := &v1alpha1.TenantAccess{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: v1alpha1.TenantAccessSpec{
			Subjects: []v1alpha1.TenantSubject{{Tenant: "lunar"}},
			Rules:    []v1alpha1.TenantAccessRule{{Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{"pods", "pods/log", "*/scale"}, Namespaces: []string{"web"}}},
		}}
		if c.change != nil {
			c.change(&a.Spec)
		} else {
			a.Annotations = map[string]string{"a": strings.Repeat("x", 17<<10)}
		}
		errs := tenantaccess.Validate(a)
		if c.want == "" && len(errs) > 0 || c.want != "" && (len(errs) == 0 || !strings.Contains(errs.ToAggregate().Error(), c.want)) {
			t.Errorf("%s: %v; want %s", reason, errs, c.want)
		}
	}
}

// L3: a hostile object gets a bounded number of errors.
func TestHostileObjectsGetFewErrors(t *testing.T) {
	a := &v1alpha1.TenantAccess{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
	for range 10_000 {
		a.Spec.Subjects = append(a.Spec.Subjects, v1alpha1.TenantSubject{Tenant: "A"})
		a.Spec.Rules = append(a.Spec.Rules, v1alpha1.TenantAccessRule{Namespaces: slices.Repeat([]string{"*"}, 100)})
	}
	if errs := tenantaccess.Validate(a); len(errs) > 10_000 {
		t.Errorf("%d errors", len(errs))
	}
}
