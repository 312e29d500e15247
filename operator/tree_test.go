// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package operator_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/api/v1alpha1"
)

// selected returns the names of the tenants that a label selector selects, as kubectl get tenants -l does.
func (e *env) selected(selector client.ListOption) (names []string, err error) {
	list := &v1alpha1.TenantList{}
	err = e.List(e.Context(), list, selector)
	for _, one := range list.Items {
		names = append(names, one.Name)
	}
	slices.Sort(names)
	return names, err
}

// H1, H2, KS: Keystone's table and constraints. Either direction is one look-up, and tenants may be created in any order.
func TestTheTreeIsInLabels(t *testing.T) {
	e := newEnv(t)
	e.run()
	e.create(tenant("d", below("b")))
	d := e.reason("d", v1alpha1.ReasonInvalidParent)
	if message := readyOf(d).Message; !strings.Contains(message, `spec.parent: there is no tenant "b"; create it first`) || d.Status.State != v1alpha1.TenantInvalid {
		t.Errorf("the status is %+v", d.Status)
	}
	if err := e.Get(t.Context(), client.ObjectKey{Name: "d"}, &v1alpha1.Space{}); client.IgnoreNotFound(err) != nil || err == nil {
		t.Errorf("the space of a tenant that the tree refuses: %v", err)
	}
	e.create(tenant("c", below("a")), tenant("b", below("a")), tenant("a"))

	for ancestor, want := range map[string][]string{"a": {"b", "c", "d"}, "b": {"d"}, "c": nil} {
		e.eventually("descendants of "+ancestor, func(context.Context) error {
			got, err := e.selected(client.HasLabels{v1alpha1.LabelTreePrefix + ancestor})
			if err == nil && !slices.Equal(got, want) {
				err = fmt.Errorf("got %v, want %v", got, want)
			}
			return err
		})
	}
	if got, err := e.selected(client.MatchingLabels{v1alpha1.LabelTreePrefix + "a": "1"}); err != nil || !slices.Equal(got, []string{"b", "c"}) {
		t.Errorf("children of a: %v, %v", got, err)
	}
	above := map[string]string{v1alpha1.LabelTreePrefix + "a": "2", v1alpha1.LabelTreePrefix + "b": "1"}
	d = e.tenantIs("d", "has both above it", func(one *v1alpha1.Tenant) bool { return cmp.Equal(one.Labels, above) })
	above[v1alpha1.LabelTenant] = "d"
	e.spaceIs("d", "has the labels of its tenant", func(s *v1alpha1.Space) bool { return cmp.Equal(s.Labels, above) })
	e.tenantIs("a", "counts", func(one *v1alpha1.Tenant) bool {
		return ptr.Deref(one.Status.Children, 0) == 2 && ptr.Deref(one.Status.Subtree.Tenants, 0) == 3 && ptr.Deref(one.Status.Subtree.Spaces, 0) == 4
	})

	// Labels that are not true don't stay, and those that are come back.
	change(e, d, func(one *v1alpha1.Tenant) {
		one.Labels = map[string]string{v1alpha1.LabelTreePrefix + "c": "1", v1alpha1.LabelTreePrefix + "a": "1", "team": "blue"}
	})
	delete(above, v1alpha1.LabelTenant)
	above["team"] = "blue"
	e.tenantIs("d", "is as it was", func(one *v1alpha1.Tenant) bool { return cmp.Equal(one.Labels, above) })
	space := &v1alpha1.Space{ObjectMeta: tenant("d").ObjectMeta}
	change(e, space, func(s *v1alpha1.Space) { s.Labels[v1alpha1.LabelTreePrefix+"c"] = "1" })
	e.spaceIs("d", "is as it was", func(s *v1alpha1.Space) bool { return s.Labels[v1alpha1.LabelTreePrefix+"c"] == "" })

	// The parent is for life, by the definition; so is the depth, by the configuration.
	err := e.Patch(t.Context(), tenant("d"), client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"parent":"c"}}`)))
	if err == nil || !strings.Contains(err.Error(), "the parent of a tenant can't be changed") {
		t.Errorf("another parent: %v", err)
	}
	change(e, &v1alpha1.BerthConfiguration{ObjectMeta: tenant("berth").ObjectMeta}, func(c *v1alpha1.BerthConfiguration) { c.Spec.MaxTreeDepth = ptr.To[int32](2) })
	e.create(tenant("e", below("d")))
	if message := readyOf(e.reason("e", v1alpha1.ReasonInvalidParent)).Message; !strings.Contains(message, "3 tenants would be above") {
		t.Errorf("the message is %q", message)
	}
	change(e, &v1alpha1.BerthConfiguration{ObjectMeta: tenant("berth").ObjectMeta}, func(c *v1alpha1.BerthConfiguration) { c.Spec.MaxTreeDepth = ptr.To[int32](3) })
	e.spaceIs("e", "exists", func(*v1alpha1.Space) bool { return true })
}

// names returns the owners of a space.
func names(s *v1alpha1.Space) (all []string) {
	for _, owner := range s.Spec.Access.Owners {
		all = append(all, owner.Name)
	}
	return all
}

// H3, H4: rights hold in the tree below and end at a private tenant, whose parent must be private or a root. A change of the
// rights, and of private, reaches all that it is about.
func TestRightsAreInherited(t *testing.T) {
	e := newEnv(t)
	stop := e.run()
	e.create(tenant("a", ownedBy("anna")), tenant("b", below("a"), ownedBy("bob")), tenant("d", below("b"), ownedBy("dora")),
		tenant("p", below("a"), private, ownedBy("paul")), tenant("q", below("p"), ownedBy("quinn")))
	own := func(space string, want ...string) {
		t.Helper()
		e.spaceIs(space, fmt.Sprintf("is owned by %v", want), func(s *v1alpha1.Space) bool { return slices.Equal(names(s), want) })
	}
	own("a", "anna")
	own("b", "anna", "bob")
	own("d", "anna", "bob", "dora")
	own("p", "paul")
	own("q", "paul", "quinn")
	d := e.tenantIs("d", "has owners", func(one *v1alpha1.Tenant) bool { return len(one.Status.Owners) == 3 })
	from := map[string]string{}
	for _, owner := range d.Status.Owners {
		from[owner.Name] = owner.InheritedFrom
	}
	if diff := cmp.Diff(map[string]string{"anna": "a", "bob": "b", "dora": ""}, from); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}

	change(e, tenant("a"), func(one *v1alpha1.Tenant) { one.Spec.Owners[0].Name = "alma" })
	own("d", "alma", "bob", "dora")
	own("b", "alma", "bob")
	change(e, tenant("b"), func(one *v1alpha1.Tenant) { one.Spec.Private = ptr.To(true) })
	own("b", "bob")
	own("d", "bob", "dora")
	own("p", "paul")

	// H4: one that is private can't be below one that is not, whichever of the two changes. The refused change is not in effect, also
	// not after a restart, and tenants that it is not about go on.
	e.create(tenant("r", below("b"), private))
	own("r")
	change(e, tenant("b"), func(one *v1alpha1.Tenant) { one.Spec.Private = ptr.To(false) })
	refused := func() {
		t.Helper()
		b := e.reason("b", v1alpha1.ReasonInvalidParent)
		if message := readyOf(b).Message; !strings.Contains(message, `spec.private: the tenant "r" below is private`) {
			t.Errorf("the message is %q", message)
		}
		own("b", "bob")
		own("d", "bob", "dora")
		e.tenantIs("r", "is valid", func(one *v1alpha1.Tenant) bool { return readyOf(one).Reason == v1alpha1.ReasonSpacesNotReady })
	}
	refused()
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	change(e, tenant("r"), func(one *v1alpha1.Tenant) { one.Annotations = map[string]string{"restarted": "true"} })
	e.run()
	change(e, tenant("r"), func(one *v1alpha1.Tenant) {
		one.Spec.Owners = []v1alpha1.Owner{{Kind: v1alpha1.UserKind, Name: "rita"}}
	})
	own("r", "rita")
	refused()
	e.create(tenant("s", below("d"), private))
	if message := readyOf(e.reason("s", v1alpha1.ReasonInvalidParent)).Message; !strings.Contains(message, `the parent "d" is neither private nor a root of the tree`) {
		t.Errorf("the message is %q", message)
	}

	// Without the private one, the change takes effect by itself.
	if err := e.Delete(t.Context(), tenant("r")); err != nil {
		t.Fatal(err)
	}
	own("b", "alma", "bob")
	own("d", "alma", "bob", "dora")
}

// H6: a parent sees the sum of what those below it use, private ones too, and the sums go up as the numbers change.
func TestUsageIsSummedUpTheTree(t *testing.T) {
	e := newEnv(t)
	e.run()
	e.create(tenant("a"), tenant("b", below("a")), tenant("p", below("a"), private), tenant("q", below("p")))
	quantity := resource.MustParse
	use := func(space, cpu string, namespaces ...string) {
		t.Helper()
		e.serve(space, func(s *v1alpha1.SpaceStatus) {
			s.Quota = v1alpha1.QuotaStatus{
				Hard: map[corev1.ResourceName]resource.Quantity{"limits.cpu": quantity("8"), "pods": quantity("100")},
				Used: map[corev1.ResourceName]resource.Quantity{"limits.cpu": quantity(cpu), "pods": quantity("1")},
			}
			s.Namespaces, s.NamespaceCount = namespaces, ptr.To(int32(len(namespaces)))
		})
	}
	use("a", "1", "one")
	use("b", "500m", "two", "three")
	use("p", "2")
	use("q", "250m", "four")
	sum := func(name, cpu string, tenants, spaces, namespaces int32) {
		t.Helper()
		e.tenantIs(name, "sums up to "+cpu, func(one *v1alpha1.Tenant) bool {
			s := one.Status.Subtree
			used := s.Used["limits.cpu"]
			return used.Cmp(quantity(cpu)) == 0 && *s.Tenants == tenants && *s.Spaces == spaces && *s.Namespaces == namespaces
		})
	}
	sum("a", "3750m", 3, 4, 4)
	sum("p", "2250m", 1, 2, 1)
	a := e.reason("a", v1alpha1.ReasonActive)
	if used := a.Status.Usage.Used["limits.cpu"]; used.String() != "1" || a.Status.Summary.CPU != "3750m/64" || a.Status.Summary.Memory != "0/128Gi" || *a.Status.Size != 1 {
		t.Errorf("its own use is %+v", a.Status)
	}
	use("q", "4")
	sum("a", "7500m", 3, 4, 3) // its namespace is gone
	if err := e.Delete(t.Context(), tenant("b")); err != nil {
		t.Fatal(err)
	}
	sum("a", "7", 2, 3, 1)
}

// H4, O2: a tenant whose change the tree refuses stays where it is, and all else that its spec says takes effect: an owner who was removed
// keeps no rights.
func TestARefusedTenantLosesTheRightsThatItTakesAway(t *testing.T) {
	e := newEnv(t)
	e.run()
	own := func(want ...string) {
		t.Helper()
		e.spaceIs("d", fmt.Sprintf("is owned by %v", want), func(s *v1alpha1.Space) bool { return slices.Equal(names(s), want) })
	}
	e.create(tenant("a"), tenant("b", below("a"), ownedBy("bob")), tenant("d", below("b"), ownedBy("dave", "dora")))
	own("bob", "dave", "dora")
	change(e, tenant("d"), func(one *v1alpha1.Tenant) {
		one.Spec.Private = ptr.To(true) // the tree refuses it below b
		one.Spec.Owners = one.Spec.Owners[1:]
		one.Spec.Cordoned = ptr.To(true)
	})
	own("bob", "dora")
	e.spaceIs("d", "is cordoned", func(s *v1alpha1.Space) bool { return ptr.Deref(s.Spec.Access.Cordoned, false) })
	e.reason("d", v1alpha1.ReasonInvalidParent)
}

// H1, H7: tenants that name each other as parents have no place in the tree. They don't count each other without end, and each can be
// deleted.
func TestACycleIsRefusedAndCanBeDeleted(t *testing.T) {
	e := newEnv(t)
	e.run()
	e.create(tenant("a", below("b")), tenant("b", below("a")), tenant("c", below("b")))
	if err := e.Create(t.Context(), tenant("self", below("self"))); err == nil || !strings.Contains(err.Error(), "can't be its own parent") {
		t.Errorf("a tenant below itself: %v", err)
	}
	for name, message := range map[string]string{
		"a": `spec.parent: "b" is below the tenant "a"`, "b": `spec.parent: "a" is below the tenant "b"`,
		"c": `spec.parent: the tree refuses the tenant "b"; follow the condition Ready of that tenant`,
	} {
		e.tenantIs(name, message, func(one *v1alpha1.Tenant) bool {
			return readyOf(one).Reason == v1alpha1.ReasonInvalidParent && strings.Contains(readyOf(one).Message, message)
		})
		if err := e.Get(t.Context(), client.ObjectKey{Name: name}, &v1alpha1.Space{}); client.IgnoreNotFound(err) != nil || err == nil {
			t.Errorf("the space of %s: %v", name, err)
		}
	}
	for name, count := range map[string]int32{"a": 0, "b": 1} {
		e.tenantIs(name, "counts only those that are not above it", func(one *v1alpha1.Tenant) bool {
			return ptr.Deref(one.Status.Children, -1) == count && ptr.Deref(one.Status.Subtree.Tenants, -1) == count
		})
	}
	for _, name := range []string{"a", "c", "b"} {
		e.tenantIs(name, "has none below it", func(one *v1alpha1.Tenant) bool { return ptr.Deref(one.Status.Children, -1) == 0 })
		if err := e.Delete(t.Context(), tenant(name)); err != nil {
			t.Fatal(err)
		}
		e.gone(tenant(name))
	}
}
