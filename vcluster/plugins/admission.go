// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package plugins

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
	"github.com/berth-dev/berth/vcluster/gate"
	"github.com/berth-dev/berth/vcluster/inside"
	"github.com/berth-dev/berth/vcluster/invalid"
	"github.com/berth-dev/berth/vcluster/refusal"
	"github.com/berth-dev/berth/vcluster/requests"
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

// Chain is upstream's chain of admission plugins, behind a latch. A
// request whose client has gone goes on inside the server, unseen; had the
// quota plugin's workers ended before it comes to them, it would stay ten
// seconds.
type Chain struct {
	Next  admission.Interface
	Calls *gate.Latch
	// Space says that the control plane is one whose nodes are elsewhere.
	Space bool
	// Validations bound how many objects of clients are validated at once.
	Validations *semaphore.Weighted
	Rules       *ruleWork
	Definitions *invalid.CustomResources
	// CheckShared, if set, refuses what the definitions that the platform shares forbid.
	CheckShared func(context.Context, admission.Attributes) error
}

// Handles reports what the next plugins report.
func (g *Chain) Handles(op admission.Operation) bool { return g.Next.Handles(op) }

// Admit runs the mutating plugins. Then it rejects an object that takes too much to validate, store or answer with, and waits
// until it may be validated.
func (g *Chain) Admit(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	requests.EndValidation(ctx) // the store had another version than was expected; webhooks and policies come next, once more
	next, ok := g.Next.(admission.MutationInterface)
	if !ok || g.exempt(ctx, a) {
		return nil
	}
	leave, err := g.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	if err := next.Admit(ctx, a, o); err != nil {
		return err
	}
	if err := requests.AnswerOf(ctx).Hold(bounds.ReservationOf(ctx), a.GetObject()); err != nil {
		return refusal.Status(err, a.GetResource().GroupResource(), a.GetName())
	}
	if err := counts.Check(a.GetObject(), a.GetOldObject()); err != nil {
		return refusal.Status(err, a.GetResource().GroupResource(), a.GetName())
	}
	if g.Rules != nil && !inside.IsKeeper(ctx) {
		if err := g.Rules.admit(a); err != nil {
			return err
		}
	}
	if err := admitExpressions(ctx, a); err != nil {
		return err
	}
	if err := admitDefinition(a); err != nil {
		return err
	}
	if err := requests.BeginValidation(ctx, g.Validations, a); err != nil {
		return err
	}
	if err := invalid.CheckDefinition(ctx, a); err != nil || g.Definitions == nil {
		return err
	}
	return g.Definitions.Check(ctx, a)
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
	return refusal.Status(bounds.ReservationOf(ctx).Grow(have.Memory()), resource, a.GetName())
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

// Validate runs the validating plugins.
func (g *Chain) Validate(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	requests.EndValidation(ctx) // webhooks come next, which may write to the space
	next, ok := g.Next.(admission.ValidationInterface)
	if !ok || g.exempt(ctx, a) {
		return nil
	}
	leave, err := g.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	if g.CheckShared != nil {
		if err := g.CheckShared(ctx, a); err != nil {
			return err
		}
	}
	return next.Validate(ctx, a, o)
}

// enter counts a call until leave is called. It fails if the space is stopping, or if the request has ended.
func (g *Chain) enter(ctx context.Context) (leave func(), err error) {
	if !g.Calls.Enter() {
		return nil, apierrors.NewServiceUnavailable(gate.ErrStopping.Error())
	}
	work := bounds.WorkOf(ctx)
	if !work.Begin() {
		g.Calls.Leave()
		return nil, apierrors.NewServiceUnavailable(requests.ErrAnswered.Error())
	}
	return func() {
		work.Done()
		g.Calls.Leave()
	}, nil
}

// exempt is not who comes from inside and poses as somebody else: what Berth
// does on a host of its own in a space's name is held to the host's policies.
func (g *Chain) exempt(ctx context.Context, a admission.Attributes) bool {
	resource := a.GetResource().GroupResource()
	return inside.Is(ctx) && a.GetUserInfo().GetName() == user.APIServerUser && (startsWith[resource] || g.Space && resource == onlyBerths)
}
