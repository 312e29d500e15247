// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/api/v1alpha1"
)

// pool is where the pods of a tenant's spaces run on the host, and with which priorities.
type pool struct {
	nodes    v1alpha1.Nodes
	priority v1alpha1.Priority
}

// rootPool returns the pool of a tenant without a tenant above.
func rootPool(spec *v1alpha1.TenantSpec, defaults *v1alpha1.TenantDefaults) pool {
	own := pool{nodes: spec.Nodes, priority: spec.Priority}
	own.nodes.Selector = joined(defaults.Nodes.Selector, spec.Nodes.Selector)
	own.fill(pool{nodes: defaults.Nodes, priority: v1alpha1.Priority{PriorityClasses: defaults.Priority}})
	return own
}

// fill sets what isn't set, other than the selector and the preemption.
func (p *pool) fill(from pool) {
	if len(p.nodes.AllowedLabels) == 0 {
		p.nodes.AllowedLabels = from.nodes.AllowedLabels
	}
	if len(p.nodes.Tolerations) == 0 {
		p.nodes.Tolerations = from.nodes.Tolerations
	}
	if len(p.priority.AllowedClasses) == 0 {
		p.priority.AllowedClasses = from.priority.AllowedClasses
	}
	if p.priority.DefaultClass == "" {
		p.priority.DefaultClass = from.priority.DefaultClass
	}
}

// narrow returns the pool of a tenant below the one that p is of, above. What the tenant must not have is left out, and is an error:
// its pods run on no other nodes than those of the tenant above, with no other priorities.
func (p pool) narrow(above string, spec *v1alpha1.TenantSpec) (own pool, errs field.ErrorList) {
	nodes, priority := field.NewPath("spec", "nodes"), field.NewPath("spec", "priority")
	own = pool{nodes: v1alpha1.Nodes{Selector: joined(spec.Nodes.Selector, p.nodes.Selector)}, priority: v1alpha1.Priority{Preemption: spec.Priority.Preemption}}
	for _, key := range slices.Sorted(maps.Keys(spec.Nodes.Selector)) {
		if value, ok := p.nodes.Selector[key]; ok && value != spec.Nodes.Selector[key] {
			errs = append(errs, field.Invalid(nodes.Child("selector").Key(key), spec.Nodes.Selector[key],
				fmt.Sprintf("the pods of the tenant %s above run on nodes with %s=%s only; use that value, or leave it out", above, key, value)))
		}
	}
	refuse := func(at *field.Path, value, list string) {
		errs = append(errs, field.Invalid(at, value, fmt.Sprintf("the tenant %s above does not have it; add it to %s of that tenant, or remove it here", above, list)))
	}
	for i, label := range spec.Nodes.AllowedLabels {
		if slices.Contains(p.nodes.AllowedLabels, label) {
			own.nodes.AllowedLabels = append(own.nodes.AllowedLabels, label)
		} else {
			refuse(nodes.Child("allowedLabels").Index(i), label, nodes.Child("allowedLabels").String())
		}
	}
	for i, t := range spec.Nodes.Tolerations {
		if slices.Contains(p.nodes.Tolerations, t) {
			own.nodes.Tolerations = append(own.nodes.Tolerations, t)
		} else {
			refuse(nodes.Child("tolerations").Index(i), t.Key, nodes.Child("tolerations").String())
		}
	}
	bounded := p.priority.AllowedClasses
	for i, name := range spec.Priority.AllowedClasses {
		if len(bounded) == 0 || slices.Contains(bounded, name) {
			own.priority.AllowedClasses = append(own.priority.AllowedClasses, name)
		} else {
			refuse(priority.Child("allowedClasses").Index(i), name, priority.Child("allowedClasses").String())
		}
	}
	if name := spec.Priority.DefaultClass; len(bounded) == 0 || name == p.priority.DefaultClass || slices.Contains(bounded, name) {
		own.priority.DefaultClass = name
	} else if name != "" {
		refuse(priority.Child("defaultClass"), name, priority.Child("allowedClasses").String())
	}
	own.fill(p)
	return own, errs
}

// joined returns the entries of both maps; those of the second take precedence.
func joined(a, b map[string]string) map[string]string {
	if len(a) == 0 {
		return b
	}
	all := maps.Clone(a)
	maps.Copy(all, b)
	return all
}

// findPool finds the pool of the tenant by the tenants above, whether it is private or not.
func (one *run) findPool(ctx context.Context) error {
	if one.tenant.Name == v1alpha1.SystemTenant {
		return nil // its pods are the host's
	}
	ancestors := one.tree.Ancestors(one.tenant.Name)
	slices.Reverse(ancestors) // the root first
	chain := make([]*v1alpha1.Tenant, 0, len(ancestors)+1)
	for _, name := range ancestors {
		above := &v1alpha1.Tenant{}
		if err := one.client.Get(ctx, client.ObjectKey{Name: name}, above); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("read tenant %s: %w", name, err)
		} else if err != nil {
			chain = chain[:0] // begin below it, which has a parent and so is no root
			continue
		}
		chain = append(chain, above)
	}
	chain = append(chain, one.tenant)
	if chain[0].Spec.Parent != "" {
		return nil // the tree is broken above, and what the pool is can't be known: the spaces keep theirs
	}
	found, errs := rootPool(&chain[0].Spec, &one.config.Spec.TenantDefaults), field.ErrorList(nil)
	for i, each := range chain[1:] {
		found, errs = found.narrow(chain[i].Name, &each.Spec)
	}
	one.pool = &found
	if len(errs) > 0 {
		one.flag(&problem{reason: v1alpha1.ReasonInvalidSpec, message: errs.ToAggregate().Error(), state: v1alpha1.TenantInvalid})
	}
	return one.checkOwnNodes(ctx)
}

// checkOwnNodes disables preemption on nodes where pods of other tenants may run, too.
func (one *run) checkOwnNodes(ctx context.Context) error {
	if one.pool.priority.Preemption != v1alpha1.PreemptionOwnNodes {
		return nil
	}
	list := &v1alpha1.SpaceList{}
	if err := one.client.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list spaces: %w", err)
	}
	var sharing []v1alpha1.Space
	for i := range list.Items {
		if space := &list.Items[i]; space.Spec.TenantName != one.tenant.Name && !apart(&one.pool.nodes, &space.Spec.Nodes) {
			sharing = append(sharing, *space)
		}
	}
	if len(sharing) == 0 {
		return nil
	}
	one.pool.priority.Preemption = v1alpha1.PreemptionDisabled
	slices.SortFunc(sharing, func(a, b v1alpha1.Space) int { return strings.Compare(a.Name, b.Name) })
	one.flag(&problem{reason: v1alpha1.ReasonInvalidSpec, state: v1alpha1.TenantInvalid, message: fmt.Sprintf(
		"spec.priority.preemption: Invalid value: %q: pods of spaces of others may run on the same nodes: %s; give those another value of a label of spec.nodes.selector, taint the nodes "+
			"and set spec.nodes.tolerations of this tenant only, or remove the field", v1alpha1.PreemptionOwnNodes, nameList(sharing, func(s *v1alpha1.Space) string { return s.Name }))})
	return nil
}

// apart reports whether pods of the one run on other nodes than pods of the other: by a label that has different values, or because the
// one has nodes with a taint that the other doesn't tolerate.
func apart(one, other *v1alpha1.Nodes) bool {
	for key, value := range one.Selector {
		if theirs, ok := other.Selector[key]; ok && theirs != value {
			return true
		}
	}
	return len(one.Tolerations) > 0 && len(one.Selector) > 0 && !slices.ContainsFunc(one.Tolerations, func(t v1alpha1.Toleration) bool {
		// Pods of others that are preferred elsewhere may still run there, and pods that request a device tolerate its name.
		return t.Effect == corev1.TaintEffectPreferNoSchedule || strings.Contains(t.Key, "/") || slices.ContainsFunc(other.Tolerations, func(o v1alpha1.Toleration) bool { return o.Key == t.Key })
	})
}

// setPool sets the fields of a space that are about its pool. The tenant's entries of the node selector hold, and a space may add some:
// so its pods don't leave the pool. The other fields give way to the space's own, which only admins set.
func (one *run) setPool(want, have *v1alpha1.SpaceSpec, others func(...any) bool) {
	if one.pool == nil {
		want.Nodes, want.Priority = have.Nodes, have.Priority
		return
	}
	want.Nodes, want.Priority = *one.pool.nodes.DeepCopy(), *one.pool.priority.DeepCopy()
	if others("spec", "nodes", "tolerations") {
		want.Nodes.Tolerations = nil
	}
	if others("spec", "priority", "allowedClasses") {
		want.Priority.AllowedClasses = nil
	}
	if others("spec", "priority", "defaultClass") {
		want.Priority.DefaultClass = ""
	}
	if others("spec", "priority", "preemption") {
		want.Priority.Preemption = ""
	}
}

// selectorSummary returns the labels of a node selector, such as "disk=ssd,pool=acme".
func selectorSummary(selector map[string]string) string {
	var all []string
	for _, key := range slices.Sorted(maps.Keys(selector)) {
		all = append(all, key+"="+selector[key])
	}
	text := strings.Join(all, ",")
	if len(text) > maxSummary {
		text = text[:maxSummary-3] + "..."
	}
	return text
}
