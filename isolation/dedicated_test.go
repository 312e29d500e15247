// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package isolation_test

import (
	"errors"
	"slices"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/isolation"
	"github.com/berth-dev/berth/syncer/declaration"
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
	synced := []*declaration.Declaration{
		{Name: "notes.example.com", GVR: schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "notes"}},
		{Name: "pens.example.com", GVR: schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "pens"}, FromHost: true},
	}
	if err := isolation.Apply(ctx, c, space, nil, isolation.Dedicated(resources.SyncOptions{}, synced...)); err != nil {
		t.Fatal(err)
	}
	inNamespace, inCluster := &rbacv1.Role{}, &rbacv1.ClusterRole{}
	if err := errors.Join(c.Get(ctx, client.ObjectKey{Namespace: "berth-a", Name: "berth-dedicated"}, inNamespace), c.Get(ctx, client.ObjectKey{Name: "berth-a:dedicated"}, inCluster)); err != nil {
		t.Fatal(err)
	}
	watches := func(resource string) func(rbacv1.PolicyRule) bool {
		return func(rule rbacv1.PolicyRule) bool {
			return slices.Equal(rule.APIGroups, []string{"example.com"}) && slices.Equal(rule.Resources, []string{resource}) && slices.Equal(rule.Verbs, []string{"list", "watch"})
		}
	}
	// What is synced to the host is watched in the space's namespace alone.
	for resource, want := range map[string][2]bool{"notes": {true, false}, "pens": {false, true}} {
		if got := [2]bool{slices.ContainsFunc(inNamespace.Rules, watches(resource)), slices.ContainsFunc(inCluster.Rules, watches(resource))}; got != want {
			t.Errorf("%s may be watched in the namespace, and in the cluster: %v, want %v", resource, got, want)
		}
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
