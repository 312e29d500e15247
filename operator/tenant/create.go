// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/api/v1alpha1"
)

// createSpace creates the space of the tenant's name (T1), if the tenant is in the tree. It takes over no space of anybody else.
func (one *run) createSpace(ctx context.Context) error {
	name := one.tenant.Name
	if name == v1alpha1.SystemTenant {
		return nil // its space is the host (T3)
	}
	if _, accepted := one.tree.Get(name); !accepted {
		return nil
	}
	space := &v1alpha1.Space{}
	err := one.client.Get(ctx, client.ObjectKey{Name: name}, space)
	switch {
	case apierrors.IsNotFound(err):
		return one.create(ctx)
	case err != nil:
		return fmt.Errorf("read space %s: %w", name, err)
	case space.Spec.TenantName == "":
		one.flag(taken("the space %s exists and belongs to no tenant; to give it to this one, set its spec.tenantName to %q, or delete one of the two", name, name))
	case space.Spec.TenantName != name:
		one.flag(taken("the space %s exists and belongs to the tenant %s; delete it, or delete this tenant and choose another name", name, space.Spec.TenantName))
	case !slices.ContainsFunc(one.spaces, func(s v1alpha1.Space) bool { return s.Name == name }):
		one.spaces = append(one.spaces, *space) // which the cache has had since they were listed: without it, the tenant would seem ready
	}
	return nil // other spaces of the tenant get what it says
}

func taken(format string, args ...any) *problem {
	return &problem{reason: v1alpha1.ReasonNameTaken, message: fmt.Sprintf(format, args...), state: v1alpha1.TenantInvalid}
}

func (one *run) create(ctx context.Context) error {
	spec, defaults := one.tenant.Spec.Space, one.config.Spec.TenantDefaults
	space := &v1alpha1.Space{
		ObjectMeta: metav1.ObjectMeta{Name: one.tenant.Name, Labels: map[string]string{v1alpha1.LabelTenant: one.tenant.Name}},
		Spec: v1alpha1.SpaceSpec{
			TenantName:   one.tenant.Name,
			PlatformName: cmp.Or(spec.PlatformName, defaults.PlatformName), Isolation: cmp.Or(spec.Isolation, defaults.Isolation),
			DeletionPolicy: spec.DeletionPolicy,
		},
	}
	if err := one.client.Create(ctx, space, fieldOwner); err != nil {
		return fmt.Errorf("create space %s: %w", space.Name, err)
	}
	one.events.Eventf(one.tenant, space, corev1.EventTypeNormal, "SpaceCreated", "CreateSpace", "created the space %s", space.Name)
	one.spaces = append(one.spaces, *space)
	return nil
}
