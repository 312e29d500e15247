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
	eventsv1 "k8s.io/api/events/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1alpha1ac "github.com/berth-dev/berth/api/applyconfiguration/api/v1alpha1"
	"github.com/berth-dev/berth/api/v1alpha1"
)

// T6, M4: a space that can't have what its tenant says doesn't keep the tenant's other spaces from having it.
func TestASpaceThatCannotHaveItsTenantsDefaultsHoldsUpNoOther(t *testing.T) {
	e := newEnv(t)
	e.run()
	identities := func(kind string, n int) (all []v1alpha1.WorkloadIdentity) {
		for i := range n {
			all = append(all, v1alpha1.WorkloadIdentity{Annotation: fmt.Sprintf("cloud.example.com/%s-%d", kind, i), Values: []string{"17"}})
		}
		return all
	}
	e.create(tenant("solar", ownedBy("alice")))
	e.spaceIs("solar", "is owned", func(s *v1alpha1.Space) bool { return slices.Equal(names(s), []string{"alice"}) })
	e.create(&v1alpha1.Space{ObjectMeta: tenant("a-full-one").ObjectMeta, Spec: v1alpha1.SpaceSpec{TenantName: "solar", WorkloadIdentity: identities("own", 8)}})
	e.spaceIs("a-full-one", "is owned", func(s *v1alpha1.Space) bool { return slices.Equal(names(s), []string{"alice"}) })
	change(e, tenant("solar"), func(one *v1alpha1.Tenant) { one.Spec.WorkloadIdentity = identities("tenant", 1) })
	e.spaceIs("solar", "has the tenant's", func(s *v1alpha1.Space) bool { return len(s.Spec.WorkloadIdentity) == 1 })
}

// O8: an admin who changes a part of what a Space has of its Tenant takes all of it over.
func TestAnAdminTakesOverAWholeEntryOfATenant(t *testing.T) {
	e := newEnv(t)
	e.run()
	quota := func(pods string) []v1alpha1.ScopedQuota {
		return []v1alpha1.ScopedQuota{{
			Name: "batch", Hard: map[corev1.ResourceName]resource.Quantity{"pods": resource.MustParse(pods)}, Scopes: []corev1.ResourceQuotaScope{corev1.ResourceQuotaScopeTerminating},
		}}
	}
	podsAre := func(want string) func(s *v1alpha1.Space) bool {
		return func(s *v1alpha1.Space) bool {
			return len(s.Spec.ScopedQuotas) == 1 && ptr.To(s.Spec.ScopedQuotas[0].Hard["pods"]).String() == want
		}
	}
	e.create(tenant("solar", func(s *v1alpha1.TenantSpec) { s.ScopedQuotas = quota("10") }))
	space := e.spaceIs("solar", "has the tenant's", podsAre("10"))
	change(e, space, func(s *v1alpha1.Space) { s.Spec.ScopedQuotas[0].Hard["pods"] = resource.MustParse("5") })
	change(e, tenant("solar"), func(one *v1alpha1.Tenant) {
		one.Spec.ScopedQuotas = quota("20")
		one.Spec.HostNamespaces.Labels = map[string]string{"round": "two"}
	})
	space = e.spaceIs("solar", "follows the tenant", func(s *v1alpha1.Space) bool { return s.Spec.HostNamespace.Labels["round"] == "two" })
	if !podsAre("5")(space) {
		t.Errorf("the admin's quota is %v now", space.Spec.ScopedQuotas)
	}
}

// S1: the spaces of a tenant have its patches, and keep one that an admin has changed for a space.
func TestSpacesHaveThePatchesOfTheirTenant(t *testing.T) {
	e := newEnv(t)
	e.run()
	patch := func(name, expression string) v1alpha1.SyncPatch {
		return v1alpha1.SyncPatch{Name: name, Resource: "pods", Path: "spec.containers[*].image", Expression: expression}
	}
	e.create(tenant("solar", func(s *v1alpha1.TenantSpec) {
		s.Patches = []v1alpha1.SyncPatch{patch("registry", "value"), patch("other", "value")}
	}))
	space := e.spaceIs("solar", "has the tenant's", func(s *v1alpha1.Space) bool { return len(s.Spec.Patches) == 2 })
	change(e, space, func(s *v1alpha1.Space) {
		for i := range s.Spec.Patches {
			if s.Spec.Patches[i].Name == "registry" {
				s.Spec.Patches[i].Expression = `"own/" + value`
			}
		}
	})
	change(e, tenant("solar"), func(one *v1alpha1.Tenant) {
		one.Spec.Patches = []v1alpha1.SyncPatch{patch("registry", `"new/" + value`)}
	})
	space = e.spaceIs("solar", "lost the other", func(s *v1alpha1.Space) bool { return len(s.Spec.Patches) == 1 })
	if is := space.Spec.Patches[0]; is.Expression != `"own/" + value` || is.Path != "spec.containers[*].image" {
		t.Errorf("the admin's patch is %v now", is)
	}
}

// T1: a space of somebody else is never taken over. It becomes the tenant's when its admin says so.
func TestASpaceOfTheSameNameIsNotTakenOver(t *testing.T) {
	e := newEnv(t)
	e.run()
	e.create(&v1alpha1.Space{ObjectMeta: tenant("solar").ObjectMeta}, tenant("solar", ownedBy("alice")))
	solar := e.reason("solar", v1alpha1.ReasonNameTaken)
	if message := readyOf(solar).Message; !strings.Contains(message, `set its spec.tenantName to "solar"`) {
		t.Errorf("the message is %q", message)
	}
	space := e.spaceIs("solar", "is as it was", func(s *v1alpha1.Space) bool { return s.Spec.TenantName == "" })
	if len(space.Labels) > 0 || len(names(space)) > 0 {
		t.Errorf("the space is %+v", space)
	}
	change(e, space, func(s *v1alpha1.Space) { s.Spec.TenantName = "solar" })
	e.spaceIs("solar", "is owned", func(s *v1alpha1.Space) bool { return slices.Equal(names(s), []string{"alice"}) })
	e.reason("solar", v1alpha1.ReasonSpacesNotReady)

	e.create(&v1alpha1.Space{ObjectMeta: tenant("lunar").ObjectMeta, Spec: v1alpha1.SpaceSpec{TenantName: "solar"}}, tenant("lunar", ownedBy("bob")))
	if message := readyOf(e.reason("lunar", v1alpha1.ReasonNameTaken)).Message; !strings.Contains(message, "belongs to the tenant solar") {
		t.Errorf("the message is %q", message)
	}
	e.spaceIs("lunar", "is owned by that of solar", func(s *v1alpha1.Space) bool { return slices.Equal(names(s), []string{"alice"}) })
}

// O8, Q1: what a tenant says of quotas, limits, and the host namespaces is a default for its spaces: what somebody else has set in
// a space stays. What it says of access and namespaces is all that holds.
func TestATenantsDefaultsGiveWayToTheSpacesOwn(t *testing.T) {
	e := newEnv(t)
	e.run()
	const admin = client.FieldOwner("admin")
	const gpus, pages = "requests.example.com/gpu", "requests.hugepages-2Mi" // of a quota, a space is told only which devices there are
	quantity := resource.MustParse
	quantities := func(pairs ...string) map[corev1.ResourceName]resource.Quantity {
		all := map[corev1.ResourceName]resource.Quantity{}
		for i := 0; i < len(pairs); i += 2 {
			all[corev1.ResourceName(pairs[i])] = quantity(pairs[i+1])
		}
		return all
	}
	limit := func(kind corev1.LimitType, cpu string) corev1.LimitRangeItem {
		return corev1.LimitRangeItem{Type: kind, Max: corev1.ResourceList{"cpu": quantity(cpu)}}
	}
	scoped := func(name, pods string) v1alpha1.ScopedQuota {
		return v1alpha1.ScopedQuota{Name: name, Hard: quantities("pods", pods), Scopes: []corev1.ResourceQuotaScope{corev1.ResourceQuotaScopeTerminating}}
	}
	scopedOf := func(s *v1alpha1.Space) (all string) {
		for _, q := range s.Spec.ScopedQuotas {
			pods := q.Hard["pods"]
			all += q.Name + "=" + pods.String() + " "
		}
		return all
	}
	e.reason(v1alpha1.SystemTenant, v1alpha1.ReasonActive)
	change(e, &v1alpha1.BerthConfiguration{ObjectMeta: tenant("berth").ObjectMeta}, func(c *v1alpha1.BerthConfiguration) {
		c.Spec.TenantDefaults = v1alpha1.TenantDefaults{Quota: quantities(gpus, "4", "pods", "50"), OwnerProfile: v1alpha1.NamespaceAdmin, Isolation: v1alpha1.Dedicated}
	})
	e.limitIs(v1alpha1.DefaultTenant, "pods", "50") // the operator knows the configuration
	e.create(tenant("solar", func(s *v1alpha1.TenantSpec) {
		s.Quota = quantities("limits.cpu", "8", gpus, "8", pages, "16Gi")
		s.LimitRange = []corev1.LimitRangeItem{limit(corev1.LimitTypePod, "2"), limit(corev1.LimitTypeContainer, "1")}
		s.ScopedQuotas = []v1alpha1.ScopedQuota{scoped("batch", "20"), scoped("long", "30")}
		s.HostNamespaces = v1alpha1.HostNamespace{Labels: map[string]string{"cost-center": "7", "backup": "daily"}, Annotations: map[string]string{"a": "b"}}
	}))
	space := e.spaceIs("solar", "has the tenant's", func(s *v1alpha1.Space) bool { return len(s.Spec.Quota) > 0 })
	if diff := cmp.Diff(quantities(gpus, "8", pages, "16Gi"), space.Spec.Quota); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	e.limitIs("solar", "limits.cpu", "8", gpus, "8", "pods", "50", "requests.cpu", "16")
	if space.Spec.Access.OwnerProfile != v1alpha1.NamespaceAdmin || space.Spec.Isolation != v1alpha1.Dedicated || len(space.Spec.LimitRange) != 2 || scopedOf(space) != "batch=20 long=30 " ||
		space.Spec.HostNamespace.Labels["backup"] != "daily" || space.Spec.HostNamespace.Annotations["a"] != "b" {
		t.Errorf("the space is %+v", space.Spec)
	}

	own := v1alpha1ac.ScopedQuota().WithName("long").WithHard(quantities("pods", "5")).WithScopes(corev1.ResourceQuotaScopeTerminating)
	apply := v1alpha1ac.Space("solar").WithSpec(v1alpha1ac.SpaceSpec().WithScopedQuotas(own).WithIsolation(v1alpha1.Shared).WithQuota(quantities(gpus, "1")).
		WithLimitRange(limit(corev1.LimitTypePod, "9")).WithHostNamespace(v1alpha1ac.HostNamespace().WithLabels(map[string]string{"backup": "never"})))
	if err := e.Apply(t.Context(), apply, admin, client.ForceOwnership); err != nil {
		t.Fatal(err)
	}
	change(e, tenant("solar"), func(one *v1alpha1.Tenant) {
		one.Spec.Quota = quantities("limits.cpu", "8", gpus, "16", pages, "32Gi")
		one.Spec.LimitRange[1].Max["cpu"] = quantity("3")
		one.Spec.ScopedQuotas = []v1alpha1.ScopedQuota{scoped("batch", "21"), scoped("long", "31")}
	})
	space = e.spaceIs("solar", "follows the tenant", func(s *v1alpha1.Space) bool {
		most := s.Spec.Quota[pages]
		return most.String() == "32Gi"
	})
	if diff := cmp.Diff(quantities(gpus, "1", pages, "32Gi"), space.Spec.Quota); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if got := scopedOf(space); !strings.Contains(got, "batch=21 ") || !strings.Contains(got, "long=5 ") {
		t.Errorf("scoped quotas of the space: %s", got)
	}
	cpu := map[corev1.LimitType]string{}
	for _, item := range space.Spec.LimitRange {
		cpu[item.Type] = item.Max.Cpu().String()
	}
	if diff := cmp.Diff(map[corev1.LimitType]string{"Pod": "9", "Container": "3"}, cpu); diff != "" || space.Spec.Isolation != v1alpha1.Shared {
		t.Errorf("%s -want +got:\n%s", space.Spec.Isolation, diff)
	}
	if diff := cmp.Diff(map[string]string{"cost-center": "7", "backup": "never"}, space.Spec.HostNamespace.Labels); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}

	// The admin of the space doesn't set it any more; then it is the tenant's again.
	if err := e.Apply(t.Context(), v1alpha1ac.Space("solar"), admin, client.ForceOwnership); err != nil {
		t.Fatal(err)
	}
	e.spaceIs("solar", "has the tenant's again", func(s *v1alpha1.Space) bool {
		limit := s.Spec.Quota[gpus]
		return limit.String() == "16" && s.Spec.HostNamespace.Labels["backup"] == "daily" && len(s.Spec.LimitRange) == 2
	})
	// What the tenant doesn't set any more is gone.
	change(e, tenant("solar"), func(one *v1alpha1.Tenant) {
		one.Spec.Quota, one.Spec.ScopedQuotas, one.Spec.HostNamespaces = nil, nil, v1alpha1.HostNamespace{}
	})
	e.spaceIs("solar", "has the configuration's", func(s *v1alpha1.Space) bool {
		return cmp.Equal(s.Spec.Quota, quantities(gpus, "4")) && len(s.Spec.HostNamespace.Labels) == 0 && len(s.Spec.ScopedQuotas) == 0
	})

	// Nobody adds an owner to a space of a tenant, or to its namespaces' labels; other fields are free.
	change(e, space, func(s *v1alpha1.Space) {
		s.Spec.Access.Owners = append(s.Spec.Access.Owners, v1alpha1.Owner{Kind: v1alpha1.UserKind, Name: "eve"})
		s.Spec.Access.Cordoned, s.Spec.Namespaces.Labels = ptr.To(true), map[string]string{"x": "y"}
		s.Spec.Publications = []string{"of-another-controller"}
	})
	e.spaceIs("solar", "is as it was", func(s *v1alpha1.Space) bool {
		return len(s.Spec.Access.Owners) == 0 && s.Spec.Access.Cordoned == nil && len(s.Spec.Namespaces.Labels) == 0 && slices.Contains(s.Spec.Publications, "of-another-controller")
	})
}

// O8: the quota of namespaces is for all spaces of a tenant together, and the status shows what there is.
func TestNamespacesAreCountedOverAllSpaces(t *testing.T) {
	e := newEnv(t)
	e.run()
	policy := networkingv1.NetworkPolicySpec{PolicyTypes: []networkingv1.PolicyType{"Ingress"}}
	e.create(tenant("solar", ownedBy("alice", "bob", "carol", "dave"), func(s *v1alpha1.TenantSpec) {
		s.Namespaces = v1alpha1.Namespaces{
			Quota: ptr.To[int32](5), Labels: map[string]string{"a": "b"}, NetworkPolicies: []networkingv1.NetworkPolicySpec{policy},
			LimitRanges: []corev1.LimitRangeSpec{{Limits: []corev1.LimitRangeItem{{Type: corev1.LimitTypePod, Max: corev1.ResourceList{"cpu": resource.MustParse("1")}}}}},
		}
	}))
	e.create(&v1alpha1.Space{ObjectMeta: metav1.ObjectMeta{Name: "solar-test"}, Spec: v1alpha1.SpaceSpec{TenantName: "solar"}})
	quota := func(space string, want int32) {
		t.Helper()
		e.spaceIs(space, fmt.Sprintf("may have %d namespaces", want), func(s *v1alpha1.Space) bool { return ptr.Deref(s.Spec.Namespaces.Quota, -1) == want })
	}
	quota("solar", 5)
	quota("solar-test", 5)
	count := func(space string, namespaces ...string) {
		e.serve(space, func(s *v1alpha1.SpaceStatus) {
			s.Namespaces, s.NamespaceCount = namespaces, ptr.To(int32(len(namespaces)))
		})
	}
	count("solar", "solar-production", "solar-system")
	quota("solar-test", 3)
	count("solar-test", "a", "b", "c", "d", "e", "f")
	quota("solar", 0)
	solar := e.tenantIs("solar", "has 8", func(one *v1alpha1.Tenant) bool {
		return *one.Status.Size == 8 && readyOf(one).Reason == v1alpha1.ReasonActive
	})
	want := []string{"solar-production", "solar-system", "solar-test/a", "solar-test/b", "solar-test/c", "solar-test/d", "solar-test/e", "solar-test/f"}
	if diff := cmp.Diff(want, solar.Status.Namespaces); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if diff := cmp.Diff([]string{"solar", "solar-test"}, solar.Status.Spaces); diff != "" {
		t.Error(diff)
	}
	if s := solar.Status.Summary; s.Spaces != "2/2" || s.Owners != "alice,bob,carol +1" {
		t.Errorf("the summary is %+v", s)
	}
	space := e.spaceIs("solar-test", "has the tenant's namespaces", func(s *v1alpha1.Space) bool { return s.Spec.Namespaces.Labels["a"] == "b" })
	if len(space.Spec.Namespaces.NetworkPolicies) != 1 || len(space.Spec.Namespaces.LimitRanges) != 1 {
		t.Errorf("the namespaces are %+v", space.Spec.Namespaces)
	}
	change(e, tenant("solar"), func(one *v1alpha1.Tenant) { one.Spec.Namespaces = v1alpha1.Namespaces{} })
	e.spaceIs("solar-test", "has no limit", func(s *v1alpha1.Space) bool { return s.Spec.Namespaces.Quota == nil })
}

// T7: the status says what is wrong, events say what was done, and a reconcile without a difference writes nothing.
func TestATenantSaysWhatIsWrong(t *testing.T) {
	e := newEnv(t)
	e.run()
	e.create(tenant("solar", func(s *v1alpha1.TenantSpec) {
		s.Permissions.MatchOwners = []metav1.LabelSelector{{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Near"}}}}
	}))
	if message := readyOf(e.reason("solar", v1alpha1.ReasonInvalidSpec)).Message; !strings.Contains(message, "spec.permissions.matchOwners[0]: ") {
		t.Errorf("the message is %q", message)
	}
	change(e, tenant("solar"), func(one *v1alpha1.Tenant) { one.Spec.Permissions = v1alpha1.Permissions{} })
	if message := readyOf(e.reason("solar", v1alpha1.ReasonSpacesNotReady)).Message; !strings.Contains(message, "solar (no platform berth has served it yet)") {
		t.Errorf("the message is %q", message)
	}
	e.serve("solar", nil)
	solar := e.reason("solar", v1alpha1.ReasonActive)
	space := e.spaceIs("solar", "exists", func(*v1alpha1.Space) bool { return true })

	change(e, &v1alpha1.BerthConfiguration{ObjectMeta: tenant("berth").ObjectMeta}, func(c *v1alpha1.BerthConfiguration) {
		c.Spec.TenantDefaults.PlatformName = "other" // all tenants are reconciled, and nothing differs
	})
	tries := 0
	e.eventually("a space is for the other platform", func(ctx context.Context) error { // once the operator's cache has the configuration
		tries++
		last := tenant(fmt.Sprintf("last-%d", tries))
		e.create(last)
		e.reason(last.GetName(), v1alpha1.ReasonSpacesNotReady)
		space := &v1alpha1.Space{}
		if err := e.Get(ctx, client.ObjectKey{Name: last.GetName()}, space); err != nil || space.Spec.PlatformName != "other" {
			return fmt.Errorf("it is for %q: %w", space.Spec.PlatformName, err)
		}
		return nil
	})
	if now := e.reason("solar", v1alpha1.ReasonActive); now.ResourceVersion != solar.ResourceVersion {
		t.Errorf("the tenant was written without a difference")
	}
	if now := e.spaceIs("solar", "exists", func(*v1alpha1.Space) bool { return true }); now.ResourceVersion != space.ResourceVersion {
		t.Errorf("the space was written without a difference")
	}

	seen := map[string]bool{}
	e.eventually("events", func(ctx context.Context) error {
		list := &eventsv1.EventList{}
		if err := e.List(ctx, list); err != nil {
			return err
		}
		for _, event := range list.Items {
			if event.Regarding.Kind == "Tenant" && event.Regarding.Name == "solar" {
				seen[event.Type+" "+event.Reason] = true
			}
		}
		for _, want := range []string{"Normal SpaceCreated", "Warning InvalidSpec", "Normal Active"} {
			if !seen[want] {
				return fmt.Errorf("there is no %s in %v", want, seen)
			}
		}
		return nil
	})
}

// T1: a space that names a tenant that doesn't exist says so in an event.
func TestASpaceOfATenantThatDoesNotExistSaysSo(t *testing.T) {
	e := newEnv(t)
	e.run()
	e.create(&v1alpha1.Space{ObjectMeta: metav1.ObjectMeta{Name: "orphan"}, Spec: v1alpha1.SpaceSpec{TenantName: "typo"}})
	e.eventually("an event", func(ctx context.Context) error {
		list := &eventsv1.EventList{}
		if err := e.List(ctx, list); err != nil {
			return err
		}
		for _, event := range list.Items {
			if event.Regarding.Name == "orphan" && event.Reason == "TenantNotFound" && strings.Contains(event.Note, "there is no tenant typo") {
				return nil
			}
		}
		return fmt.Errorf("there is none among %d", len(list.Items))
	})
}
