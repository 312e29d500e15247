// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package operator_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/berth-dev/berth/api/v1alpha1"
)

// manifest creates objects from YAML, as an admin would.
func (e *env) manifest(text string) {
	e.Helper()
	for part := range strings.SplitSeq(text, "---\n") {
		kind := &metav1.TypeMeta{}
		if err := yaml.Unmarshal([]byte(part), kind); err != nil {
			e.Fatal(err)
		}
		object, err := e.Scheme().New(kind.GroupVersionKind())
		if err == nil {
			err = yaml.UnmarshalStrict([]byte(part), object)
		}
		if err != nil {
			e.Fatal(err)
		}
		e.create(object.(client.Object))
	}
}

func ownersYAML(t *v1alpha1.Tenant) string {
	text, err := yaml.Marshal(map[string]any{"owners": t.Status.Owners})
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// O2: CP's examples of owners, with the status that it prints.
func TestOwnersAreAsInCapsulesExamples(t *testing.T) {
	e := newEnv(t)
	e.run()
	e.manifest(`
apiVersion: berth.dev/v1alpha1
kind: TenantOwner
metadata:
  labels:
    team: devops
  name: devops
spec:
  kind: Group
  name: "oidc:org:devops:a"
---
apiVersion: berth.dev/v1alpha1
kind: Tenant
metadata:
  name: solar
spec:
  owners:
  - clusterRoles:
    - admin
    - berth-namespace-deleter
    kind: User
    name: alice
  - clusterRoles:
    - admin
    - berth-namespace-deleter
    kind: ServiceAccount
    name: system:serviceaccount:capsule:controller
  permissions:
    matchOwners:
    - matchLabels:
        team: devops
    - matchLabels:
        customer: x
`)
	wait := func(want string) *v1alpha1.Tenant {
		t.Helper()
		return e.tenantIs("solar", "has the owners\n"+want, func(one *v1alpha1.Tenant) bool { return ownersYAML(one) == strings.TrimPrefix(want, "\n") })
	}
	wait(`
owners:
- clusterRoles:
  - admin
  - berth-namespace-deleter
  kind: Group
  name: oidc:org:devops:a
- clusterRoles:
  - admin
  - berth-namespace-deleter
  kind: ServiceAccount
  name: system:serviceaccount:capsule:controller
- clusterRoles:
  - admin
  - berth-namespace-deleter
  kind: User
  name: alice
`)
	e.manifest(`
apiVersion: berth.dev/v1alpha1
kind: TenantOwner
metadata:
  labels:
    customer: x
  name: controller
spec:
  kind: ServiceAccount
  name: "system:serviceaccount:capsule:controller"
  clusterRoles:
    - "mega-admin"
    - "controller"
`)
	solar := wait(`
owners:
- clusterRoles:
  - admin
  - berth-namespace-deleter
  kind: Group
  name: oidc:org:devops:a
- clusterRoles:
  - admin
  - berth-namespace-deleter
  - mega-admin
  - controller
  kind: ServiceAccount
  name: system:serviceaccount:capsule:controller
- clusterRoles:
  - admin
  - berth-namespace-deleter
  kind: User
  name: alice
`)
	e.spaceIs("solar", "has the same owners", func(s *v1alpha1.Space) bool {
		var have []v1alpha1.OwnerStatus
		for _, owner := range s.Spec.Access.Owners {
			have = append(have, v1alpha1.OwnerStatus{Kind: owner.Kind, Name: owner.Name, ClusterRoles: owner.ClusterRoles})
		}
		return cmp.Equal(have, solar.Status.Owners)
	})

	// One that is not selected any more, and one that is gone.
	change(e, &v1alpha1.TenantOwner{ObjectMeta: tenant("devops").ObjectMeta}, func(o *v1alpha1.TenantOwner) { o.Labels = nil })
	e.tenantIs("solar", "has two owners", func(one *v1alpha1.Tenant) bool { return len(one.Status.Owners) == 2 })
	if err := e.Delete(t.Context(), &v1alpha1.TenantOwner{ObjectMeta: tenant("controller").ObjectMeta}); err != nil {
		t.Fatal(err)
	}
	e.tenantIs("solar", "has the roles of its spec", func(one *v1alpha1.Tenant) bool { return len(one.Status.Owners[0].ClusterRoles) == 2 })
}

// O5, O6, O7: what the configuration says of owners is in all spaces of tenants, and a change of it reaches them.
func TestTheConfigurationReachesAllSpaces(t *testing.T) {
	e := newEnv(t)
	e.run()
	for i := range 5 {
		e.create(tenant(fmt.Sprintf("t%d", i), ownedBy("alice")))
	}
	e.create(tenant("strict", func(s *v1alpha1.TenantSpec) { s.OwnerProfile = v1alpha1.NamespaceAdmin }))
	e.spaceIs("t0", "exists", func(s *v1alpha1.Space) bool { return len(s.Spec.Access.Owners) == 1 })
	admins := []v1alpha1.Subject{{Kind: v1alpha1.GroupKind, Name: "operators"}}
	change(e, &v1alpha1.BerthConfiguration{ObjectMeta: tenant("berth").ObjectMeta}, func(c *v1alpha1.BerthConfiguration) {
		c.Spec.OwnerScope = v1alpha1.OwnerScope{Groups: []string{"solar-users"}, Users: []string{"system:serviceaccounts:tenant-system:robot"}}
		c.Spec.Administrators, c.Spec.ServiceAccountPromotion = admins, v1alpha1.Enabled
	})
	for i := range 5 {
		space := e.spaceIs(fmt.Sprintf("t%d", i), "is as configured", func(s *v1alpha1.Space) bool { return len(s.Spec.Access.Administrators) == 1 })
		want := v1alpha1.Access{
			Owners:       []v1alpha1.Owner{{Kind: v1alpha1.UserKind, Name: "alice", ClusterRoles: []string{"admin", "berth-namespace-deleter"}}},
			OwnerProfile: v1alpha1.SpaceAdmin, Administrators: admins, ServiceAccountPromotion: v1alpha1.Enabled,
			OwnerScope: v1alpha1.OwnerScope{Groups: []string{"solar-users"}, Users: []string{"system:serviceaccounts:tenant-system:robot"}},
		}
		if diff := cmp.Diff(want, space.Spec.Access); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
	}
	e.spaceIs("strict", "has its own profile", func(s *v1alpha1.Space) bool { return s.Spec.Access.OwnerProfile == v1alpha1.NamespaceAdmin })

	// O1, O8: a cordon, and its end.
	e.serve("t0", nil)
	e.reason("t0", v1alpha1.ReasonActive)
	change(e, tenant("t0"), func(one *v1alpha1.Tenant) { one.Spec.Cordoned = ptr.To(true) })
	e.spaceIs("t0", "is cordoned", func(s *v1alpha1.Space) bool { return ptr.Deref(s.Spec.Access.Cordoned, false) })
	e.tenantIs("t0", "is cordoned", func(one *v1alpha1.Tenant) bool { return one.Status.State == v1alpha1.TenantCordoned })
	change(e, tenant("t0"), func(one *v1alpha1.Tenant) { one.Spec.Cordoned = nil })
	e.spaceIs("t0", "is not cordoned", func(s *v1alpha1.Space) bool { return s.Spec.Access.Cordoned == nil })
	e.tenantIs("t0", "is active", func(one *v1alpha1.Tenant) bool { return one.Status.State == v1alpha1.TenantActive })
}
