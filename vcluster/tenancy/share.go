// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package tenancy

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/kubernetes/pkg/api/legacyscheme"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/sharing"
	"github.com/berth-dev/berth/vcluster/inside"
)

// checkShare lets only owners with the role admin share objects, and change or delete what is shared (H8). It refuses what can't be
// shared.
func (p *Plugin) checkShare(ctx context.Context, a admission.Attributes) error {
	was, shared := shareOf(a.GetOldObject(), a.GetOperation() == admission.Create)
	is, shares := shareOf(a.GetObject(), a.GetOperation() == admission.Delete)
	switch {
	case !shared && !shares, shared && changesOnlyStatus(a):
		return nil
	case inside.Is(ctx):
		// A webhook or policy of a user may have changed what a controller writes. What they do with shared objects is their work:
		// they count quotas, collect garbage, and add up roles.
		if shares && (!shared || was != is) {
			return errors.New(sharing.LabelField + ": controllers don't share objects; let an owner set the label")
		}
		return nil
	}
	if shares && (!shared || was != is) {
		if err := sharing.CheckResource(a.GetResource().GroupResource(), is); err != nil {
			return err
		}
	}
	if _, ok := sharing.KindOf(a.GetResource().GroupResource()); !ok {
		return nil // it had the label before Berth knew it
	}
	if !p.mayShare(a.GetUserInfo()) {
		if shared {
			return fmt.Errorf("%s: the object is shared, so only owners of the tenant with the role admin can change or delete it, and no promoted ServiceAccounts; ask one of them", sharing.LabelField)
		}
		return errors.New(sharing.LabelField + ": only owners of the tenant with the role admin can share an object, and no promoted ServiceAccounts; ask one of them, or remove the label")
	}
	if !shares {
		return nil
	}
	state := p.source.Get()
	if state.Tenant == "" {
		return errors.New(sharing.LabelField + ": the space belongs to no tenant, so that none is below it; remove the label")
	}
	if _, err := sharing.ScopeOf(is); err != nil {
		return err
	}
	object, err := asJSON(a)
	if err != nil {
		return err
	}
	if err := sharing.Check(object); err != nil {
		return err
	}
	if profile := state.Access.OwnerProfile; profile != v1alpha1.SpaceAdmin && sharing.NeedsWholeSpace(object) {
		return fmt.Errorf("%s: spec.ownerProfile of tenant %s is %s, so the space can share only ConfigMaps, Secrets, NetworkPolicies, and RoleBindings to the ClusterRoles admin, edit, and view, "+
			"in namespaces of the tenant; remove the label, or ask an admin for the profile %s", sharing.LabelField, state.Tenant, profile, v1alpha1.SpaceAdmin)
	}
	return nil
}

// mayShare reports whether somebody owns the tenants below as well, as far as these inherit. A ServiceAccount that was promoted owns
// this space only.
func (p *Plugin) mayShare(u user.Info) bool {
	return u != nil && (isAdmin(u) || p.source.Rules().StandingOf(u, false).MayPromote())
}

// shareOf returns the value of the label, and whether the object has it.
func shareOf(object runtime.Object, none bool) (value string, has bool) {
	m := metadataOf(object)
	if m == nil || none {
		return "", false
	}
	value, has = m.GetLabels()[v1alpha1.LabelShare]
	return value, has
}

// asJSON returns the object of a request as clients see it.
func asJSON(a admission.Attributes) (*unstructured.Unstructured, error) {
	versioned, err := legacyscheme.Scheme.ConvertToVersion(a.GetObject(), a.GetKind().GroupVersion())
	if err != nil {
		return nil, fmt.Errorf("convert the object: %w", err)
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(versioned)
	if err != nil {
		return nil, fmt.Errorf("convert the object: %w", err)
	}
	object := &unstructured.Unstructured{Object: content}
	object.SetGroupVersionKind(a.GetKind())
	return object, nil
}
