// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package owners

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/berth-dev/berth/api/v1alpha1"
)

// The definition of Space has the same limits.
const (
	// MaxOwners is how many owners a space may have.
	MaxOwners = 256
	// MaxRoles is how many roles an owner may have.
	MaxRoles = 32
	// MaxBindings is how many additional role bindings a space may have.
	MaxBindings = 128
)

// Owner is an owner with all of its roles.
type Owner struct {
	v1alpha1.Owner
	// InheritedFrom is the nearest tenant above that has the owner; "" if the tenant itself has it.
	InheritedFrom string
}

// Rights are the owners of a tenant, sorted by kind and name, and its additional role bindings.
type Rights struct {
	Owners   []Owner
	Bindings []v1alpha1.AdditionalRoleBinding
}

// Of returns the rights in a tenant's spaces. bequeathers are the tenants above whose rights it inherits, the nearest first. all
// are the TenantOwners of the host. The error names the selectors of the tenant itself that are invalid, and limits that were
// exceeded. The rights are valid also then: the nearest owners are in them.
func Of(tenant *v1alpha1.Tenant, bequeathers []*v1alpha1.Tenant, all []v1alpha1.TenantOwner) (Rights, error) {
	own, err := named(tenant, all)
	list := merged{}
	for _, owner := range own {
		list.add(owner, "")
	}
	bindings := slices.Clone(tenant.Spec.AdditionalRoleBindings)
	for _, above := range bequeathers {
		inherited, _ := named(above, all) // an invalid selector is in the status of that tenant
		for _, owner := range inherited {
			list.add(owner, above.Name)
		}
		for _, binding := range above.Spec.AdditionalRoleBindings {
			if !slices.ContainsFunc(bindings, func(b v1alpha1.AdditionalRoleBinding) bool { return reflect.DeepEqual(b, binding) }) {
				bindings = append(bindings, binding)
			}
		}
	}
	if n := len(list); n > MaxOwners {
		err = errors.Join(err, fmt.Errorf("the tenant has %d owners with those that it inherits, and at most %d are possible; name groups instead of users", n, MaxOwners))
		list = list[:MaxOwners]
	}
	if n := len(bindings); n > MaxBindings {
		err = errors.Join(err, fmt.Errorf("spec.additionalRoleBindings: the tenant has %d with those that it inherits, and at most %d are possible; "+
			"join subjects of the same role", n, MaxBindings))
		bindings = bindings[:MaxBindings]
	}
	slices.SortFunc(list, func(a, b Owner) int { return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name)) })
	return Rights{Owners: list, Bindings: bindings}, err
}

// Selects reports whether a tenant's permissions select a TenantOwner with these labels.
func Selects(tenant *v1alpha1.Tenant, set labels.Set) bool {
	return slices.ContainsFunc(tenant.Spec.Permissions.MatchOwners, func(s metav1.LabelSelector) bool {
		selector, err := metav1.LabelSelectorAsSelector(&s)
		return err == nil && selector.Matches(set)
	})
}

// named returns the owners that a tenant itself names: those of its spec, and those that its permissions select, ordered by the
// names of the TenantOwners.
func named(tenant *v1alpha1.Tenant, all []v1alpha1.TenantOwner) ([]v1alpha1.Owner, error) {
	var errs []error
	var selectors []labels.Selector
	for i := range tenant.Spec.Permissions.MatchOwners {
		selector, err := metav1.LabelSelectorAsSelector(&tenant.Spec.Permissions.MatchOwners[i])
		if err != nil {
			errs = append(errs, fmt.Errorf("spec.permissions.matchOwners[%d]: %w", i, err))
			continue
		}
		selectors = append(selectors, selector)
	}
	owners := slices.Clone(tenant.Spec.Owners)
	if len(selectors) == 0 {
		return owners, errors.Join(errs...)
	}
	var selected []*v1alpha1.TenantOwner
	for i := range all {
		if slices.ContainsFunc(selectors, func(s labels.Selector) bool { return s.Matches(labels.Set(all[i].Labels)) }) {
			selected = append(selected, &all[i])
		}
	}
	slices.SortFunc(selected, func(a, b *v1alpha1.TenantOwner) int { return cmp.Compare(a.Name, b.Name) })
	for _, owner := range selected {
		owners = append(owners, owner.Spec)
	}
	return owners, errors.Join(errs...)
}

// merged are owners, each once.
type merged []Owner

// add joins the roles, labels, and annotations of an owner of the same kind and name. Those that are there already come first.
func (m *merged) add(owner v1alpha1.Owner, from string) {
	i := slices.IndexFunc(*m, func(o Owner) bool { return o.Kind == owner.Kind && o.Name == owner.Name })
	if i < 0 {
		owner.ClusterRoles = unique(nil, owner.ClusterRoles)
		owner.Labels, owner.Annotations = maps.Clone(owner.Labels), maps.Clone(owner.Annotations)
		*m = append(*m, Owner{Owner: owner, InheritedFrom: from})
		return
	}
	have := &(*m)[i]
	have.ClusterRoles = unique(have.ClusterRoles, owner.ClusterRoles)
	have.Labels, have.Annotations = joined(have.Labels, owner.Labels), joined(have.Annotations, owner.Annotations)
}

func unique(have, more []string) []string {
	for _, role := range more {
		if len(have) < MaxRoles && !slices.Contains(have, role) {
			have = append(have, role)
		}
	}
	return have
}

func joined(have, more map[string]string) map[string]string {
	for key, value := range more {
		if have == nil {
			have = map[string]string{}
		}
		if _, ok := have[key]; !ok {
			have[key] = value
		}
	}
	return have
}
