// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package vcluster

import (
	"context"

	"golang.org/x/sync/semaphore"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/berth-dev/berth/bounds"
	"github.com/berth-dev/berth/vcluster/counts"
	"github.com/berth-dev/berth/vcluster/expressions"
	"github.com/berth-dev/berth/vcluster/inside"
	"github.com/berth-dev/berth/vcluster/invalid"
	"github.com/berth-dev/berth/vcluster/schemas"
)

// startsWith lists what an API server writes for itself before it is ready.
// Those writes of its own pass no admission: a webhook or policy of a tenant
// could otherwise keep the tenant's space from starting ever again, and so from
// being repaired.
var startsWith = map[schema.GroupResource]bool{
	{Group: "apiregistration.k8s.io", Resource: "apiservices"}:            true,
	{Group: "networking.k8s.io", Resource: "ipaddresses"}:                 true,
	{Group: "networking.k8s.io", Resource: "servicecidrs"}:                true,
	{Group: "rbac.authorization.k8s.io", Resource: "clusterroles"}:        true,
	{Group: "rbac.authorization.k8s.io", Resource: "clusterrolebindings"}: true,
	{Group: "scheduling.k8s.io", Resource: "priorityclasses"}:             true,
}

// onlyBerths are what nobody but Berth writes in a space. Nobody's webhooks and
// policies have a say in it either.
var onlyBerths = schema.GroupResource{Resource: "nodes"}

// guardedAdmission is upstream's chain of admission plugins, behind a latch. A
// request whose client has gone goes on inside the server, unseen; had the
// quota plugin's workers ended before it comes to them, it would stay ten
// seconds.
type guardedAdmission struct {
	next  admission.Interface
	calls *latch
	// space says that the control plane is one whose nodes are elsewhere.
	space bool
	// validations bound how many objects of clients are validated at once.
	validations *semaphore.Weighted
	rules       *ruleWork
	definitions *invalid.CustomResources
}

func (g *guardedAdmission) Handles(op admission.Operation) bool { return g.next.Handles(op) }

func (g *guardedAdmission) Admit(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	endValidation(ctx) // the store had another version than was expected; webhooks and policies come next, once more
	next, ok := g.next.(admission.MutationInterface)
	if !ok || g.exempt(ctx, a) {
		return nil
	}
	if !g.calls.enter() {
		return apierrors.NewServiceUnavailable(errStopping.Error())
	}
	defer g.calls.leave()
	work := bounds.WorkOf(ctx)
	if !work.Begin() {
		return apierrors.NewServiceUnavailable(errAnswered.Error())
	}
	defer work.Done()
	if err := next.Admit(ctx, a, o); err != nil {
		return err
	}
	if err := answerOf(ctx).hold(bounds.ReservationOf(ctx), a.GetObject()); err != nil {
		return asStatus(err, a.GetResource().GroupResource(), a.GetName())
	}
	if err := counts.Check(a.GetObject(), a.GetOldObject()); err != nil {
		return asStatus(err, a.GetResource().GroupResource(), a.GetName())
	}
	if g.rules != nil {
		if err := g.rules.admit(a); err != nil {
			return err
		}
	}
	if err := admitExpressions(ctx, a); err != nil {
		return err
	}
	if err := admitDefinition(a); err != nil {
		return err
	}
	if err := beginValidation(ctx, g.validations, a); err != nil {
		return err
	}
	if err := invalid.CheckDefinition(ctx, a); err != nil || g.definitions == nil {
		return err
	}
	return g.definitions.Check(ctx, a)
}

// admitExpressions refuses an object with too many CEL expressions, and takes what they need to be compiled, which validation
// does, from the request's reservation. What an object had before it may keep.
func admitExpressions(ctx context.Context, a admission.Attributes) error {
	if a.GetSubresource() != "" {
		return nil
	}
	resource := a.GetResource().GroupResource()
	have := expressions.In(a.GetObject())
	if have.Number == 0 {
		return nil
	}
	if err := bounds.ObjectExpressions.Check(int64(have.Number)); err != nil && have.Number > expressions.In(a.GetOldObject()).Number {
		return apierrors.NewForbidden(resource, a.GetName(), err)
	}
	return asStatus(bounds.ReservationOf(ctx).Grow(have.Memory()), resource, a.GetName())
}

// admitDefinition refuses definitions that would cost all spaces. It is asked after all that changes objects, webhooks
// included, and before the validation of objects, which compiles patterns. Patterns are compiled for custom resources too.
func admitDefinition(a admission.Attributes) error {
	schemas.TrimCache()
	d, ok := a.GetObject().(*apiextensions.CustomResourceDefinition)
	if !ok || a.GetSubresource() != "" {
		return nil
	}
	var errs field.ErrorList
	if old, ok := a.GetOldObject().(*apiextensions.CustomResourceDefinition); ok && a.GetOperation() == admission.Update {
		errs = schemas.CheckUpdate(d, old)
	} else {
		errs = schemas.Check(d)
	}
	if len(errs) == 0 {
		return nil
	}
	return apierrors.NewForbidden(apiextensionsv1.Resource("customresourcedefinitions"), d.Name, errs.ToAggregate())
}

func (g *guardedAdmission) Validate(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	endValidation(ctx) // webhooks come next, which may write to the space
	next, ok := g.next.(admission.ValidationInterface)
	if !ok || g.exempt(ctx, a) {
		return nil
	}
	if !g.calls.enter() {
		return apierrors.NewServiceUnavailable(errStopping.Error())
	}
	defer g.calls.leave()
	work := bounds.WorkOf(ctx)
	if !work.Begin() {
		return apierrors.NewServiceUnavailable(errAnswered.Error())
	}
	defer work.Done()
	return next.Validate(ctx, a, o)
}

// exempt is not who comes from inside and poses as somebody else: what Berth
// does on a host of its own in a space's name is held to the host's policies.
func (g *guardedAdmission) exempt(ctx context.Context, a admission.Attributes) bool {
	resource := a.GetResource().GroupResource()
	return inside.Is(ctx) && a.GetUserInfo().GetName() == user.APIServerUser && (startsWith[resource] || g.space && resource == onlyBerths)
}
