// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1alpha1ac "github.com/berth-dev/berth/api/applyconfiguration/api/v1alpha1"
	"github.com/berth-dev/berth/api/v1alpha1"
)

// applySpaces gives the tenant's spaces what the tenant says. If one can't have it, the others have it all the same.
func (one *run) applySpaces(ctx context.Context) error {
	labels := one.treeLabels()
	var errs []error
	for i := range one.spaces {
		if !one.spaces[i].DeletionTimestamp.IsZero() {
			continue
		}
		if err := one.applySpace(ctx, &one.spaces[i], labels); err != nil {
			errs = append(errs, fmt.Errorf("apply space %s: %w", one.spaces[i].Name, err))
		}
	}
	const few = 5 // of many, which mostly have the same cause
	return errors.Join(errs[:min(len(errs), few)]...)
}

func (one *run) applySpace(ctx context.Context, space *v1alpha1.Space, treeLabels map[string]string) error {
	want, err := one.wanted(space)
	if err != nil {
		return err
	}
	labels := maps.Clone(treeLabels)
	labels[v1alpha1.LabelTenant] = one.tenant.Name
	spec := &v1alpha1ac.SpaceSpecApplyConfiguration{}
	if err := convert(want, spec); err != nil {
		return err
	}
	apply := v1alpha1ac.Space(space.Name).WithLabels(labels).WithSpec(spec)
	if above := one.tree.Bequeathers(one.tenant.Name); len(above) > 0 {
		apply.WithAnnotations(map[string]string{v1alpha1.AnnotationInheritsFrom: strings.Join(above, ",")})
	}
	applied, err := v1alpha1ac.ExtractSpace(space, string(fieldOwner))
	if err != nil {
		return fmt.Errorf("read what was applied: %w", err)
	}
	if !same(applied, apply) {
		// The version makes sure that nobody has set a field in the meantime that this has as a default.
		apply = apply.WithUID(space.UID).WithResourceVersion(space.ResourceVersion)
		one.applied = true
		return one.client.Apply(ctx, apply, fieldOwner, client.ForceOwnership)
	}
	tenants := space.DeepCopy()
	tenants.Spec.Access, tenants.Spec.Namespaces, tenants.Spec.TenantLimits, tenants.Spec.Audit = want.Access, want.Namespaces, want.TenantLimits, want.Audit
	if !equality.Semantic.DeepEqual(&space.Spec, &tenants.Spec) {
		// Somebody has added to these fields. They are the tenant's alone.
		return one.patch(ctx, tenants, space)
	}
	if _, set := space.Annotations[v1alpha1.AnnotationInheritsFrom]; set && apply.Annotations == nil {
		changed := space.DeepCopy()
		delete(changed.Annotations, v1alpha1.AnnotationInheritsFrom)
		return one.patch(ctx, changed, space)
	}
	return one.unmark(ctx, space, labels)
}

// convert makes an apply configuration of an object.
func convert(from, to any) error {
	text, err := json.Marshal(from)
	if err == nil {
		err = json.Unmarshal(text, to)
	}
	if err != nil {
		return fmt.Errorf("convert %T: %w", from, err)
	}
	return nil
}

// same reports whether two apply configurations say the same.
func same(a, b *v1alpha1ac.SpaceApplyConfiguration) bool {
	var values [2]any
	return convert(a, &values[0]) == nil && convert(b, &values[1]) == nil && reflect.DeepEqual(values[0], values[1])
}
