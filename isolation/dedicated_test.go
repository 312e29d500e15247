// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package isolation_test

import (
	"slices"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/isolation"
	"github.com/berth-dev/berth/syncer/resources"
	"github.com/berth-dev/berth/translate"
)

// S3: the rights of a process of its own are taken from a space that has none any more, also where somebody else, such as a tool that
// restored a backup, says that the account has them.
func TestTheRightsOfADedicatedSpaceAreTakenBack(t *testing.T) {
	c, err := client.New(startCluster(t), client.Options{Scheme: scheme.Scheme})
	if err != nil {
		t.Fatal(err)
	}
	space, ctx := translate.Space{Name: "a", Store: "s", Platform: "berth"}, t.Context()
	if err := isolation.Apply(ctx, c, space, nil, isolation.Dedicated(resources.SyncOptions{})); err != nil {
		t.Fatal(err)
	}
	bindings := []client.Object{&rbacv1.RoleBinding{}, &rbacv1.ClusterRoleBinding{}}
	keys := []client.ObjectKey{{Namespace: "berth-a", Name: "berth-dedicated"}, {Name: "berth-a:dedicated"}}
	subjects := func(o client.Object) []rbacv1.Subject {
		switch o := o.(type) {
		case *rbacv1.RoleBinding:
			return o.Subjects
		case *rbacv1.ClusterRoleBinding:
			return o.Subjects
		}
		return nil
	}
	for i, binding := range bindings {
		if err := c.Get(ctx, keys[i], binding); err != nil || len(subjects(binding)) != 1 {
			t.Fatalf("%s binds %v (%v)", keys[i], subjects(binding), err)
		}
		restored, _ := binding.DeepCopyObject().(client.Object)
		restored.GetObjectKind().SetGroupVersionKind(rbacv1.SchemeGroupVersion.WithKind([]string{"RoleBinding", "ClusterRoleBinding"}[i]))
		restored.SetManagedFields(nil)
		restored.SetResourceVersion("")
		//nolint:staticcheck // as Berth does
		if err := c.Patch(ctx, restored, client.Apply, client.FieldOwner("restore"), client.ForceOwnership); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 { // it is repeatable
		if err := isolation.Apply(ctx, c, space, nil, isolation.Undedicated(resources.SyncOptions{})); err != nil {
			t.Fatal(err)
		}
	}
	for i, binding := range bindings {
		if err := c.Get(ctx, keys[i], binding); err != nil || !slices.Equal(subjects(binding), nil) {
			t.Errorf("%s still binds %v (%v)", keys[i], subjects(binding), err)
		}
	}
}
