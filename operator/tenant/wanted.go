// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/translate"
)

// wanted returns the fields of a space's spec that the tenant sets. Access, namespaces, tenantLimits, audit, and the node selector are the tenant's.
// The others are defaults: what another field manager has set is left out.
func (one *run) wanted(space *v1alpha1.Space) (*v1alpha1.SpaceSpec, error) {
	others, err := setByOthers(space.ManagedFields)
	if err != nil {
		return nil, err
	}
	want := &v1alpha1.SpaceSpec{Access: one.access(), Namespaces: one.namespaces(space), TenantLimits: one.limits(), Audit: one.tenant.Spec.Audit}
	// The API of a space refuses devices that the spec of the space doesn't name. The ledger holds all spaces to these amounts together.
	want.Quota = translate.CountedIn(one.quota)
	if one.quota == nil { // it isn't known now
		want.Quota = translate.CountedIn(space.Spec.Quota)
	}
	maps.DeleteFunc(want.Quota, func(name corev1.ResourceName, _ resource.Quantity) bool { return others("spec", "quota", string(name)) })
	for _, quota := range one.tenant.Spec.ScopedQuotas {
		if !others("spec", "scopedQuotas", fieldpath.KeyByFields("name", quota.Name)) {
			want.ScopedQuotas = append(want.ScopedQuotas, quota)
		}
	}
	for _, limit := range one.tenant.Spec.LimitRange {
		if !others("spec", "limitRange", fieldpath.KeyByFields("type", string(limit.Type))) {
			want.LimitRange = append(want.LimitRange, limit)
		}
	}
	for _, identity := range one.tenant.Spec.WorkloadIdentity {
		if !others("spec", "workloadIdentity", fieldpath.KeyByFields("annotation", identity.Annotation)) {
			want.WorkloadIdentity = append(want.WorkloadIdentity, identity)
		}
	}
	for _, patch := range one.tenant.Spec.Patches {
		if !others("spec", "patches", fieldpath.KeyByFields("name", patch.Name)) {
			want.Patches = append(want.Patches, patch)
		}
	}
	want.HostNamespace.Labels = unset(one.tenant.Spec.HostNamespaces.Labels, others, "labels")
	want.HostNamespace.Annotations = unset(one.tenant.Spec.HostNamespaces.Annotations, others, "annotations")
	one.setPool(want, &space.Spec, others)
	return want, nil
}

// unset returns the entries that nobody else has set.
func unset(from map[string]string, others func(...any) bool, field string) map[string]string {
	left := maps.Clone(from)
	maps.DeleteFunc(left, func(key, _ string) bool { return others("spec", "hostNamespace", field, key) })
	return left
}

// setByOthers returns whether a field was set by a field manager other than the operator.
func setByOthers(managed []metav1.ManagedFieldsEntry) (func(path ...any) bool, error) {
	var sets []*fieldpath.Set
	for _, entry := range managed {
		if entry.Manager == string(fieldOwner) || entry.Subresource != "" || entry.FieldsV1 == nil {
			continue
		}
		set := &fieldpath.Set{}
		if err := set.FromJSON(entry.FieldsV1.GetRawReader()); err != nil {
			return nil, fmt.Errorf("read managed fields of %s: %w", entry.Manager, err)
		}
		sets = append(sets, set)
	}
	return func(parts ...any) bool {
		path, err := fieldpath.MakePath(parts...)
		if err != nil {
			return false
		}
		for _, set := range sets {
			if set.Has(path) {
				return true
			}
		}
		return false
	}, nil
}

// access returns who owns the tenant's spaces.
func (one *run) access() v1alpha1.Access {
	spec, config := &one.tenant.Spec, &one.config.Spec
	access := v1alpha1.Access{
		OwnerProfile:            cmp.Or(spec.OwnerProfile, config.TenantDefaults.OwnerProfile, v1alpha1.SpaceAdmin),
		Administrators:          config.Administrators,
		OwnerScope:              config.OwnerScope,
		ServiceAccountPromotion: config.ServiceAccountPromotion,
		AdditionalRoleBindings:  slices.Concat(config.AdditionalRoleBindings, one.rights.Bindings),
		Cordoned:                spec.Cordoned,
	}
	for _, owner := range one.rights.Owners {
		access.Owners = append(access.Owners, owner.Owner)
	}
	return access
}

// limits returns what the spaces of the tenant may use together; nil if nothing differs from the built-in defaults.
func (one *run) limits() map[string]resource.Quantity {
	limits := maps.Clone(one.config.Spec.TenantDefaults.Limits)
	if limits == nil {
		return one.tenant.Spec.Limits
	}
	maps.Copy(limits, one.tenant.Spec.Limits)
	return limits
}

// namespaces returns what the namespaces of a space have. Its quota is what the other spaces leave of the tenant's (O8).
func (one *run) namespaces(space *v1alpha1.Space) v1alpha1.Namespaces {
	namespaces := *one.tenant.Spec.Namespaces.DeepCopy()
	namespaces.Quota = cmp.Or(namespaces.Quota, one.config.Spec.TenantDefaults.NamespaceQuota)
	if namespaces.Quota == nil {
		return namespaces
	}
	left := *namespaces.Quota
	for i := range one.spaces {
		if one.spaces[i].Name != space.Name {
			left -= ptr.Deref(one.spaces[i].Status.NamespaceCount, 0)
		}
	}
	namespaces.Quota = ptr.To(max(0, left))
	return namespaces
}
