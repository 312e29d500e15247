// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package operator_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/berth-dev/berth/api/v1alpha1"
)

// refused waits until a deletion is refused as the policies say: they are in force a moment after they were written. Each attempt
// is a dry run.
func (e *env) refused(name string, says ...string) {
	e.Helper()
	e.eventually("the deletion of "+name+" is refused", func(ctx context.Context) error {
		err := e.Delete(ctx, tenant(name), client.DryRunAll)
		if !apierrors.IsForbidden(err) {
			return fmt.Errorf("got %w", err)
		}
		for _, part := range says {
			if !strings.Contains(err.Error(), part) {
				return fmt.Errorf("got %w, want %q", err, part)
			}
		}
		return nil
	})
}

// T3, T4, H7: the host refuses to delete tenants that always exist, and those with others below them, and says what to do.
func TestTheHostRefusesToDeleteTenantsByMistake(t *testing.T) {
	e := newEnv(t)
	e.run()
	e.reason(v1alpha1.DefaultTenant, v1alpha1.ReasonSpacesNotReady)
	for _, name := range []string{v1alpha1.SystemTenant, v1alpha1.DefaultTenant} {
		e.refused(name, "the tenant "+name+" always exists and cannot be deleted")
	}
	e.create(tenant("acme"), tenant("acme-dev", below("acme")), tenant("acme-test", below("acme")))
	e.refused("acme", "the tenant acme has tenants below it: 2; delete them first", "berth tenant delete acme --subtree",
		`kubectl patch tenant acme --type merge -p '{"spec":{"deletionPropagation":"Subtree"}}'`)
	if err := e.Delete(t.Context(), tenant("acme-dev"), client.DryRunAll); err != nil {
		t.Errorf("a tenant that has none below it: %v", err)
	}
	change(e, tenant("acme"), func(one *v1alpha1.Tenant) { one.Spec.DeletionPropagation = v1alpha1.DeleteSubtree })
	if err := e.Delete(t.Context(), tenant("acme"), client.DryRunAll); err != nil {
		t.Errorf("the deletion of a subtree: %v", err)
	}

	// Another default tenant is created, and the host doesn't let it be deleted as long as it is the default one.
	change(e, &v1alpha1.BerthConfiguration{ObjectMeta: tenant("berth").ObjectMeta}, func(c *v1alpha1.BerthConfiguration) { c.Spec.DefaultTenantName = "guests" })
	e.reason("guests", v1alpha1.ReasonSpacesNotReady)
	e.refused("guests", "the tenant guests is the default tenant", "name another one in spec.defaultTenantName of the BerthConfiguration berth first")
}

// T6, H7: a subtree is deleted on request, and nothing else. The spaces of each tenant are gone before the tenant is.
func TestASubtreeIsDeleted(t *testing.T) {
	e := newEnv(t)
	e.run()
	e.create(tenant("acme", func(s *v1alpha1.TenantSpec) { s.Space.DeletionPolicy = v1alpha1.DeletionRetain }),
		tenant("acme-dev", below("acme")), tenant("acme-dev-1", below("acme-dev")), tenant("acme-test", below("acme")), tenant("other"))
	names := []string{"acme", "acme-dev", "acme-dev-1", "acme-test"}
	for _, name := range append(names, "other") {
		e.spaceIs(name, "exists", func(*v1alpha1.Space) bool { return true })
	}
	more := &v1alpha1.Space{ObjectMeta: tenant("acme-more").ObjectMeta, Spec: v1alpha1.SpaceSpec{TenantName: "acme"}}
	e.create(more)
	// A platform holds the space until nothing of it is left.
	change(e, &v1alpha1.Space{ObjectMeta: tenant("acme").ObjectMeta}, func(s *v1alpha1.Space) {
		controllerutil.AddFinalizer(s, v1alpha1.Finalizer)
		s.Spec.DeletionPolicy = v1alpha1.DeletionDelete
	})

	change(e, tenant("acme"), func(one *v1alpha1.Tenant) { one.Spec.DeletionPropagation = v1alpha1.DeleteSubtree })
	if err := e.Delete(t.Context(), tenant("acme")); err != nil {
		t.Fatal(err)
	}
	for _, name := range names[1:] {
		e.gone(tenant(name))
		e.gone(&v1alpha1.Space{ObjectMeta: tenant(name).ObjectMeta})
	}
	e.gone(more)
	space := e.spaceIs("acme", "is being deleted", func(s *v1alpha1.Space) bool { return !s.DeletionTimestamp.IsZero() })
	if space.Spec.DeletionPolicy != v1alpha1.DeletionRetain {
		t.Errorf("what becomes of the store is %s", space.Spec.DeletionPolicy)
	}
	acme := e.tenantIs("acme", "waits for its space", func(one *v1alpha1.Tenant) bool {
		return readyOf(one).Reason == v1alpha1.ReasonDeleting && strings.Contains(readyOf(one).Message, "the spaces are being deleted: acme")
	})
	if acme.Status.State != v1alpha1.TenantDeleting {
		t.Errorf("the state is %s", acme.Status.State)
	}
	change(e, space, func(s *v1alpha1.Space) { controllerutil.RemoveFinalizer(s, v1alpha1.Finalizer) })
	e.gone(acme)
	e.gone(space)
	e.spaceIs("other", "is as it was", func(s *v1alpha1.Space) bool { return s.DeletionTimestamp.IsZero() })
}

// H7: a tenant that was deleted before a policy or its status could prevent that keeps its spaces, and says what to do.
func TestADeletedTenantWithChildrenWaits(t *testing.T) {
	e := newEnv(t)
	stop := e.run()
	e.create(tenant("acme"), tenant("acme-dev", below("acme")))
	e.tenantIs("acme", "has a child", func(one *v1alpha1.Tenant) bool { return ptr.Deref(one.Status.Children, 0) == 1 })
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	acme := tenant("acme")
	if err := e.Get(t.Context(), client.ObjectKeyFromObject(acme), acme); err != nil {
		t.Fatal(err)
	}
	acme.Status.Children = ptr.To[int32](0)
	if err := e.Status().Update(t.Context(), acme); err != nil {
		t.Fatal(err)
	}
	if err := e.Delete(t.Context(), acme); err != nil {
		t.Fatal(err)
	}
	e.run()
	acme = e.reason("acme", v1alpha1.ReasonHasChildren)
	for _, part := range []string{"there are tenants below this one: acme-dev;", `kubectl patch tenant acme --type merge -p '{"spec":{"deletionPropagation":"Subtree"}}'`} {
		if !strings.Contains(readyOf(acme).Message, part) {
			t.Errorf("the message is %q, want %q", readyOf(acme).Message, part)
		}
	}
	e.spaceIs("acme", "stays", func(s *v1alpha1.Space) bool { return s.DeletionTimestamp.IsZero() })
	patch := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"deletionPropagation":"Subtree"}}`))
	if err := e.Patch(t.Context(), acme, patch); err != nil {
		t.Fatal(err)
	}
	e.gone(tenant("acme-dev"))
	e.gone(tenant("acme"))
}

// T3: a tenant that always exists keeps its space, even if the request came before the policies.
func TestADefaultTenantThatIsDeletedKeepsItsSpace(t *testing.T) {
	e := newEnv(t)
	e.create(&v1alpha1.BerthConfiguration{ObjectMeta: tenant("berth").ObjectMeta, Spec: v1alpha1.BerthConfigurationSpec{DefaultTenantName: "guests"}})
	stop := e.run()
	e.reason("guests", v1alpha1.ReasonSpacesNotReady)
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	change(e, &v1alpha1.BerthConfiguration{ObjectMeta: tenant("berth").ObjectMeta}, func(c *v1alpha1.BerthConfiguration) { c.Spec.DefaultTenantName = "others" })
	e.eventually("delete the tenant", func(ctx context.Context) error { return e.Delete(ctx, tenant("guests")) })
	change(e, &v1alpha1.BerthConfiguration{ObjectMeta: tenant("berth").ObjectMeta}, func(c *v1alpha1.BerthConfiguration) { c.Spec.DefaultTenantName = "guests" })
	e.run()
	guests := e.tenantIs("guests", "says that it stays", func(one *v1alpha1.Tenant) bool { return strings.Contains(readyOf(one).Message, "always exists") })
	if !slices.Contains(guests.Finalizers, v1alpha1.TenantFinalizer) {
		t.Errorf("the finalizers are %v", guests.Finalizers)
	}
	e.spaceIs("guests", "stays", func(s *v1alpha1.Space) bool { return s.DeletionTimestamp.IsZero() })
}
