// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package overlay

import (
	"context"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	"k8s.io/apiserver/pkg/admission"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/storage"

	"github.com/berth-dev/berth/definitions"
)

type dryRunKey struct{}

// Check is what admission asks of the overlay.
func (s *Space) Check(ctx context.Context, a admission.Attributes) error {
	if err := s.checkDryRun(a); err != nil {
		return err
	}
	return s.checkOwners(ctx, a)
}

// checkDryRun refuses what the storage of definitions would refuse, which a dry run doesn't ask to write.
func (s *Space) checkDryRun(a admission.Attributes) error {
	if !a.IsDryRun() || a.GetResource().GroupResource() != resource {
		return nil
	}
	set, _ := s.current()
	name := a.GetName()
	if created, ok := a.GetObject().(*apiextensions.CustomResourceDefinition); ok {
		name = created.Name
	}
	if a.GetOperation() == admission.Create {
		return refuseCreate(set, name)
	}
	if match := set.InForce(name, true); match.Shared {
		return forbidden(set, name, match)
	}
	old, ok := a.GetOldObject().(*apiextensions.CustomResourceDefinition)
	if !ok || !definitions.IsShared(old) {
		return nil
	}
	match := set.InForce(name, false)
	if !match.Shared {
		return nil // it has switched just now
	}
	after, ok := a.GetObject().(*apiextensions.CustomResourceDefinition)
	if a.GetOperation() == admission.Update && ok && a.GetSubresource() == "" && makesOwn(old, after) {
		return nil
	}
	return forbidden(set, name, match)
}

// refuseCreate says why a definition can't be created that would not be in force; nil if it would.
func refuseCreate(set *definitions.Set, name string) error {
	match := set.InForce(name, true)
	switch {
	case !match.Shared:
		return nil
	case match.Reason == definitions.Forced:
		return forbidden(set, name, match)
	}
	return exists(name, match)
}

// creates reports whether a read is that of a dry run that would create a definition, whatever the platform shares.
func creates(ctx context.Context, opts storage.GetOptions) bool {
	if dry, _ := ctx.Value(dryRunKey{}).(bool); !dry {
		return false
	}
	info, ok := apirequest.RequestInfoFrom(ctx)
	return ok && (info.Verb == "create" || info.Verb == "patch" && opts.IgnoreNotFound)
}
