// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package operator_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/operator"
)

// T1, T3, T4: a tenant gets a space of its name. The configuration, the tenant of the host, which has no space, and the default
// tenant are there from the start.
func TestATenantGetsASpace(t *testing.T) {
	e := newEnv(t)
	e.run()
	e.reason(v1alpha1.SystemTenant, v1alpha1.ReasonActive)
	e.reason(v1alpha1.DefaultTenant, v1alpha1.ReasonSpacesNotReady)
	e.spaceIs(v1alpha1.DefaultTenant, "belongs to its tenant", func(s *v1alpha1.Space) bool { return s.Spec.TenantName == v1alpha1.DefaultTenant })

	e.create(tenant("solar", ownedBy("alice"), func(s *v1alpha1.TenantSpec) {
		s.Space = v1alpha1.TenantSpace{Isolation: v1alpha1.Dedicated, PlatformName: "other", DeletionPolicy: v1alpha1.DeletionRetain}
	}))
	space := e.spaceIs("solar", "has owners", func(s *v1alpha1.Space) bool { return len(s.Spec.Access.Owners) == 1 })
	want := v1alpha1.SpaceSpec{
		TenantName: "solar", PlatformName: "other", Isolation: v1alpha1.Dedicated, DeletionPolicy: v1alpha1.DeletionRetain,
		Access: v1alpha1.Access{
			Owners:       []v1alpha1.Owner{{Kind: v1alpha1.UserKind, Name: "alice", ClusterRoles: []string{"admin", "berth-namespace-deleter"}}},
			OwnerProfile: v1alpha1.SpaceAdmin, OwnerScope: v1alpha1.OwnerScope{Groups: []string{v1alpha1.OwnersGroup, v1alpha1.HostServiceAccountsGroup}},
			ServiceAccountPromotion: v1alpha1.Disabled,
		},
	}
	space.Spec.Publications = nil // those that exist from the start may come earlier or later
	if diff := cmp.Diff(want, space.Spec); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if space.Labels[v1alpha1.LabelTenant] != "solar" {
		t.Errorf("the labels are %v", space.Labels)
	}
	e.serve("solar", nil)
	solar := e.reason("solar", v1alpha1.ReasonActive)
	if solar.Status.State != v1alpha1.TenantActive || ptr.Deref(solar.Status.Size, -1) != 0 || solar.Status.Summary.Spaces != "1/1" {
		t.Errorf("the status is %+v", solar.Status)
	}

	// The space of a tenant that exists comes back, empty, for the platform of the tenant.
	if err := e.Delete(t.Context(), space); err != nil {
		t.Fatal(err)
	}
	again := e.spaceIs("solar", "is another one", func(s *v1alpha1.Space) bool { return s.UID != space.UID && len(s.Spec.Access.Owners) == 1 })
	again.Spec.Publications = nil
	if diff := cmp.Diff(want, again.Spec); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// T4, A7: a default tenant of any name is created, and can't be deleted while it is the default. All tenants' spaces have the role bindings
// of the configuration, besides their own.
func TestADefaultTenantOfAnyNameIsCreated(t *testing.T) {
	e := newEnv(t)
	e.create(&v1alpha1.BerthConfiguration{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.ConfigurationName}, Spec: v1alpha1.BerthConfigurationSpec{
		DefaultTenantName: "other", AdditionalRoleBindings: []v1alpha1.AdditionalRoleBinding{{ClusterRoleName: "view", Subjects: []rbacv1.Subject{{Kind: rbacv1.GroupKind, APIGroup: rbacv1.GroupName, Name: "reader"}}}},
	}})
	e.run(func(c *operator.Config) { c.DefaultTenant = "everybody" })
	e.reason("everybody", v1alpha1.ReasonSpacesNotReady)
	config := &v1alpha1.BerthConfiguration{}
	if err := e.Get(t.Context(), client.ObjectKey{Name: v1alpha1.ConfigurationName}, config); err != nil || config.Spec.DefaultTenantName != "everybody" {
		t.Errorf("the default tenant of the configuration is %s, %v", config.Spec.DefaultTenantName, err)
	}
	own := v1alpha1.AdditionalRoleBinding{ClusterRoleName: "edit", Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "alice"}}}
	e.create(tenant("solar", func(s *v1alpha1.TenantSpec) { s.AdditionalRoleBindings = []v1alpha1.AdditionalRoleBinding{own} }))
	e.spaceIs("solar", "has both role bindings", func(s *v1alpha1.Space) bool {
		bindings := s.Spec.Access.AdditionalRoleBindings
		return len(bindings) == 2 && bindings[0].ClusterRoleName == "view" && bindings[1].ClusterRoleName == "edit"
	})
	e.eventually("the default tenant is protected", func(ctx context.Context) error {
		err := e.Delete(ctx, &v1alpha1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: "everybody"}}, client.DryRunAll)
		if err == nil || !strings.Contains(err.Error(), "defaultTenantName") {
			return fmt.Errorf("its deletion is %w", err)
		}
		return nil
	})
}
