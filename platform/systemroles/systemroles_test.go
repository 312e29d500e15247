// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package systemroles

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berth-dev/berth/access"
	"github.com/berth-dev/berth/api/v1alpha1"
)

// Z6: roles hold in the spaces of their scope, for users of the tenant system, and until they are deleted.
func TestRolesHoldInTheirScope(t *testing.T) {
	changes := 0
	r := New(func() { changes++ })
	for scope, where := range map[v1alpha1.SystemScope]map[string]bool{
		v1alpha1.ScopeCluster: {"system": true, "solar": true, "solar-two": true, "lunar": true, "alone": true},
		v1alpha1.ScopeSystem:  {"system": true},
		v1alpha1.ScopeTenants: {"solar": true, "solar-two": true},
		"Later":               {},
	} {
		role := &v1alpha1.SystemRole{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: v1alpha1.SystemRoleSpec{
			ScopeType: scope, Tenants: []string{"solar", "system"}, Subjects: []v1alpha1.SystemSubject{{Kind: v1alpha1.SystemGroupKind, Name: "ops"}},
		}}
		if err := r.Replace([]any{role}, ""); err != nil {
			t.Fatal(err)
		}
		for space, tenant := range map[string]string{"system": "system", "solar": "solar", "solar-two": "solar", "lunar": "lunar", "alone": ""} {
			grants := r.Granted(space, tenant)
			if len(access.GrantsFor(grants, access.Client{Tenant: "system", Name: "x", Groups: []string{"ops"}}, time.Now())) > 0 != where[space] {
				t.Errorf("%s in %s: %v", scope, space, grants)
			}
			for _, c := range []access.Client{{Tenant: "solar", Name: "x", Groups: []string{"ops"}}, {Tenant: "system", Name: "ops"}} {
				if len(access.GrantsFor(grants, c, time.Now())) > 0 {
					t.Errorf("%s in %s is for %v", scope, space, c)
				}
			}
		}
	}
	nobody := &v1alpha1.SystemRole{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: v1alpha1.SystemRoleSpec{ScopeType: v1alpha1.ScopeCluster, Subjects: []v1alpha1.SystemSubject{{Kind: "Robot", Name: "x"}}}}
	if err := r.Update(nobody); err != nil {
		t.Fatal(err)
	}
	if len(access.GrantsFor(r.Granted("solar", "solar"), access.Client{Tenant: "system", Name: "x"}, time.Now())) > 0 {
		t.Error("a role for nobody is for everybody")
	}
	if err := r.Delete(nobody); err != nil || len(r.Granted("solar", "solar")) > 0 || changes != 6 {
		t.Errorf("after it was deleted, %v, with %d changes (%v)", r.Granted("solar", "solar"), changes, err)
	}
}
