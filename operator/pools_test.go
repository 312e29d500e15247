// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package operator_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1alpha1ac "github.com/berth-dev/berth/api/applyconfiguration/api/v1alpha1"
	"github.com/berth-dev/berth/api/v1alpha1"
)

func selecting(pairs ...string) func(*v1alpha1.TenantSpec) {
	return func(s *v1alpha1.TenantSpec) {
		s.Nodes.Selector = map[string]string{}
		for i := 0; i < len(pairs); i += 2 {
			s.Nodes.Selector[pairs[i]] = pairs[i+1]
		}
	}
}

func tolerating(keys ...string) (all []v1alpha1.Toleration) {
	for _, key := range keys {
		all = append(all, v1alpha1.Toleration{Key: key, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule})
	}
	return all
}

// M2, H1: the nodes and priorities of a tenant are those of the tenant above, and what it narrows of them. What would lead out of them
// is refused, with the field, the value, and what to do; its pods stay in the pool.
func TestATenantsPoolIsWithinThatOfItsParent(t *testing.T) {
	e := newEnv(t)
	e.run()
	e.reason(v1alpha1.SystemTenant, v1alpha1.ReasonActive)
	change(e, &v1alpha1.BerthConfiguration{ObjectMeta: tenant("berth").ObjectMeta}, func(c *v1alpha1.BerthConfiguration) {
		c.Spec.TenantDefaults.Nodes.Selector = map[string]string{"pool": "shared", "os": "linux"}
		c.Spec.TenantDefaults.Priority = v1alpha1.PriorityClasses{AllowedClasses: []string{"silver"}, DefaultClass: "bronze"}
	})
	e.create(tenant("plain"))
	e.spaceIs("plain", "has the defaults", func(s *v1alpha1.Space) bool {
		return cmp.Equal(s.Spec.Nodes, v1alpha1.Nodes{Selector: map[string]string{"pool": "shared", "os": "linux"}}) &&
			cmp.Equal(s.Spec.Priority, v1alpha1.Priority{PriorityClasses: v1alpha1.PriorityClasses{AllowedClasses: []string{"silver"}, DefaultClass: "bronze"}})
	})
	e.create(tenant("acme", selecting("pool", "acme"), func(s *v1alpha1.TenantSpec) {
		s.Nodes.AllowedLabels, s.Nodes.Tolerations = []string{"disk", "zone"}, tolerating("acme", "gpu")
		s.Priority.AllowedClasses = []string{"gold", "silver"}
	}))
	e.create(tenant("acme-dev", func(s *v1alpha1.TenantSpec) {
		s.Parent = "acme"
		selecting("disk", "ssd")(s)
		s.Nodes.AllowedLabels, s.Nodes.Tolerations = []string{"zone"}, tolerating("acme")
		s.Priority.AllowedClasses = []string{"gold"}
	}))
	e.create(tenant("acme-leaf", func(s *v1alpha1.TenantSpec) { s.Parent, s.Private = "acme", ptr.To(true) }))
	inherited := map[string]string{"pool": "acme", "os": "linux"}
	e.spaceIs("acme-leaf", "has what its parent has", func(s *v1alpha1.Space) bool {
		return cmp.Equal(s.Spec.Nodes.Selector, inherited) && len(s.Spec.Nodes.Tolerations) == 2 && len(s.Spec.Nodes.AllowedLabels) == 2 &&
			cmp.Equal(s.Spec.Priority.AllowedClasses, []string{"gold", "silver"}) && s.Spec.Priority.DefaultClass == "bronze"
	})
	narrowed := map[string]string{"pool": "acme", "os": "linux", "disk": "ssd"}
	dev := e.spaceIs("acme-dev", "has less than its parent", func(s *v1alpha1.Space) bool { return cmp.Equal(s.Spec.Nodes.Selector, narrowed) })
	if n := dev.Spec.Nodes; !cmp.Equal(n.AllowedLabels, []string{"zone"}) || !cmp.Equal(n.Tolerations, tolerating("acme")) || !cmp.Equal(dev.Spec.Priority.AllowedClasses, []string{"gold"}) {
		t.Errorf("the space has %+v, %+v", n, dev.Spec.Priority)
	}
	e.tenantIs("acme-dev", "shows its node selector", func(one *v1alpha1.Tenant) bool {
		return one.Status.Summary.NodeSelector == "disk=ssd,os=linux,pool=acme"
	})

	// What leads out of the pool of the parent.
	change(e, tenant("acme-dev"), func(one *v1alpha1.Tenant) {
		one.Spec.Nodes = v1alpha1.Nodes{Selector: map[string]string{"pool": "others", "disk": "ssd"}, AllowedLabels: []string{"rack"}, Tolerations: tolerating("others", "acme")}
		one.Spec.Priority = v1alpha1.Priority{PriorityClasses: v1alpha1.PriorityClasses{AllowedClasses: []string{"platinum"}, DefaultClass: "platinum"}}
	})
	refused := readyOf(e.reason("acme-dev", v1alpha1.ReasonInvalidSpec)).Message
	for _, want := range []string{
		`spec.nodes.selector[pool]: Invalid value: "others": the pods of the tenant acme above run on nodes with pool=acme only; use that value, or leave it out`,
		`spec.nodes.allowedLabels[0]: Invalid value: "rack": the tenant acme above does not have it; add it to spec.nodes.allowedLabels of that tenant, or remove it here`,
		`spec.nodes.tolerations[0]: Invalid value: "others"`, `spec.priority.allowedClasses[0]: Invalid value: "platinum"`, `spec.priority.defaultClass: Invalid value: "platinum"`,
	} {
		if !strings.Contains(refused, want) {
			t.Errorf("the message is %q, without %q", refused, want)
		}
	}
	held := e.spaceIs("acme-dev", "stays in the pool", func(s *v1alpha1.Space) bool {
		return !slices.Contains(s.Spec.Priority.AllowedClasses, "platinum") && len(s.Spec.Nodes.AllowedLabels) == 2
	})
	if n := held.Spec.Nodes; !cmp.Equal(n.Selector, narrowed) || !cmp.Equal(n.Tolerations, tolerating("acme")) || held.Spec.Priority.DefaultClass != "bronze" {
		t.Errorf("the space has %+v, %+v", n, held.Spec.Priority)
	}

	// A change above reaches all below.
	change(e, tenant("acme"), func(one *v1alpha1.Tenant) { one.Spec.Nodes.Selector["pool"] = "others" })
	e.spaceIs("acme-dev", "is in the parent's new pool", func(s *v1alpha1.Space) bool { return s.Spec.Nodes.Selector["pool"] == "others" })

	// An admin of the space narrows the nodes, and doesn't lead out of the pool.
	apply := v1alpha1ac.Space("acme-dev").WithSpec(v1alpha1ac.SpaceSpec().WithNodes(v1alpha1ac.Nodes().WithSelector(map[string]string{"pool": "mine", "rack": "7"})))
	if err := e.Apply(t.Context(), apply, client.FieldOwner("admin"), client.ForceOwnership); err != nil {
		t.Fatal(err)
	}
	e.spaceIs("acme-dev", "is narrowed", func(s *v1alpha1.Space) bool {
		return s.Spec.Nodes.Selector["pool"] == "others" && s.Spec.Nodes.Selector["rack"] == "7"
	})
}

// Preemption only within a tenant: the host's scheduler preempts by the value alone, so a tenant may use it only on nodes where no
// pods of other tenants run.
func TestATenantPreemptsOnNodesOfItsOwnOnly(t *testing.T) {
	e := newEnv(t)
	e.run()
	preempts := func(space string, want bool) {
		t.Helper()
		e.spaceIs(space, "preempts, or not", func(s *v1alpha1.Space) bool {
			return (s.Spec.Priority.Preemption == v1alpha1.PreemptionOwnNodes) == want
		})
	}
	e.create(tenant("acme", selecting("pool", "acme"), func(s *v1alpha1.TenantSpec) { s.Priority.Preemption = v1alpha1.PreemptionOwnNodes }))
	// The tenants default and acme both may run pods on these nodes.
	message := readyOf(e.reason("acme", v1alpha1.ReasonInvalidSpec)).Message
	if !strings.Contains(message, `spec.priority.preemption: Invalid value: "OwnNodes": pods of spaces of others may run on the same nodes: default;`) {
		t.Errorf("the message is %q", message)
	}
	preempts("acme", false)
	change(e, tenant("default"), selectingTenant("pool", "shared"))
	preempts("acme", true)

	// Another space of the tenant is no other tenant; one without a tenant is.
	e.create(&v1alpha1.Space{ObjectMeta: metav1.ObjectMeta{Name: "acme-test"}, Spec: v1alpha1.SpaceSpec{TenantName: "acme"}})
	preempts("acme-test", true)
	nobodys := &v1alpha1.Space{ObjectMeta: metav1.ObjectMeta{Name: "nobodys"}}
	e.create(nobodys)
	preempts("acme", false)
	preempts("acme-test", false)
	change(e, nobodys, func(s *v1alpha1.Space) { s.Spec.Nodes.Selector = map[string]string{"pool": "shared"} })
	preempts("acme", true)

	// A tenant below is another tenant.
	e.create(tenant("acme-dev", func(s *v1alpha1.TenantSpec) { s.Parent = "acme" }))
	preempts("acme", false)
	if err := e.Delete(t.Context(), tenant("acme-dev")); err != nil {
		t.Fatal(err)
	}
	preempts("acme", true)

	// Taints set nodes apart as well as labels do.
	change(e, nobodys, func(s *v1alpha1.Space) { s.Spec.Nodes = v1alpha1.Nodes{} })
	preempts("acme", false)
	change(e, tenant("acme"), func(one *v1alpha1.Tenant) { one.Spec.Nodes.Tolerations = tolerating("acme") })
	preempts("acme", true)
	change(e, nobodys, func(s *v1alpha1.Space) { s.Spec.Nodes.Tolerations = tolerating("acme") })
	preempts("acme", false)
}

func selectingTenant(pairs ...string) func(*v1alpha1.Tenant) {
	return func(one *v1alpha1.Tenant) { selecting(pairs...)(&one.Spec) }
}
