// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package vcluster

import (
	"context"
	"fmt"
	"slices"

	"golang.org/x/sync/semaphore"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apiserver/pkg/admission"
	mutatingpolicy "k8s.io/apiserver/pkg/admission/plugin/policy/mutating"
	validatingpolicy "k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/predicates/rules"
	"k8s.io/client-go/informers"
	lister "k8s.io/client-go/listers/admissionregistration/v1"
	kubeoptions "k8s.io/kubernetes/pkg/kubeapiserver/options"

	"github.com/berth-dev/berth/bounds"
	"github.com/berth-dev/berth/vcluster/patches"
)

// boundPolicies has the evaluation of admission policies take one of the space's slots for validation. CEL counts what a regular
// expression costs after it was matched. Requests of the space's own controllers take one, too: they write what tenants ask
// for. Where no policy is bound, nothing is evaluated, and nobody waits.
func boundPolicies(o *kubeoptions.AdmissionOptions, slots *semaphore.Weighted, factory informers.SharedInformerFactory) {
	g := o.GenericAdmission
	registration := factory.Admissionregistration().V1()
	g.Decorators = append(admission.Decorators{admission.DecoratorFunc(func(plugin admission.Interface, _ string) admission.Interface {
		switch p := plugin.(type) {
		case *mutatingpolicy.Plugin:
			bindings := registration.MutatingAdmissionPolicyBindings().Lister()
			return &boundedMutation{p, registration.MutatingAdmissionPolicies().Lister(), policySlots{slots, func() bool {
				bound, err := bindings.List(labels.Everything())
				return err != nil || len(bound) > 0
			}}}
		case *validatingpolicy.Plugin:
			bindings := registration.ValidatingAdmissionPolicyBindings().Lister()
			return &boundedValidation{p, policySlots{slots, func() bool {
				bound, err := bindings.List(labels.Everything())
				return err != nil || len(bound) > 0
			}}}
		}
		return plugin
	})}, g.Decorators...)
}

// policySlots are those that a plugin for policies takes.
type policySlots struct {
	slots *semaphore.Weighted
	bound func() bool // whether any policy is in force
}

// evaluate calls f while it holds a slot. No other of the same request is held: that of a write's validation is taken after
// policies that change objects, and given back before those that validate them. Policies wait for nobody that needs a slot.
func (p policySlots) evaluate(ctx context.Context, f func() error) error {
	if !p.bound() {
		return f()
	}
	if err := acquireValidation(ctx, p.slots); err != nil {
		return err
	}
	defer p.slots.Release(1)
	return f()
}

type boundedMutation struct {
	admission.MutationInterface
	policies lister.MutatingAdmissionPolicyLister
	policySlots
}

func (b *boundedMutation) Admit(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	if b.bound() {
		if err := b.admitPatches(ctx, a); err != nil {
			return err
		}
	}
	return b.evaluate(ctx, func() error { return b.MutationInterface.Admit(ctx, a, o) })
}

// admitPatches refuses an object for which the JSON patch of a policy may take too long, and takes the memory for it from the
// request's reservation. What a policy makes of an object is not known before it is applied.
func (b *boundedMutation) admitPatches(ctx context.Context, a admission.Attributes) error {
	policies, err := b.policies.List(labels.Everything())
	if err != nil || a.GetObject() == nil {
		return err
	}
	if !slices.ContainsFunc(policies, func(p *admissionv1.MutatingAdmissionPolicy) bool { return patchesJSON(p, a) }) {
		return nil
	}
	shape := patches.ShapeOf(a.GetObject())
	if err := shape.CheckPolicy(); err != nil {
		return admission.NewForbidden(a, fmt.Errorf("a MutatingAdmissionPolicy may change the object by a JSON patch: %w", err))
	}
	return asStatus(bounds.ReservationOf(ctx).Grow(shape.PolicyMemory()), a.GetResource().GroupResource(), a.GetName())
}

// patchesJSON reports whether a policy changes objects of a resource by JSON patches.
func patchesJSON(p *admissionv1.MutatingAdmissionPolicy, a admission.Attributes) bool {
	if !slices.ContainsFunc(p.Spec.Mutations, func(m admissionv1.Mutation) bool { return m.PatchType == admissionv1.PatchTypeJSONPatch }) {
		return false
	}
	if p.Spec.MatchConstraints == nil {
		return true
	}
	return slices.ContainsFunc(p.Spec.MatchConstraints.ResourceRules, func(r admissionv1.NamedRuleWithOperations) bool {
		rule := r.RuleWithOperations
		rule.APIVersions = []string{"*"} // other versions of the resource match by default
		m := rules.Matcher{Rule: rule, Attr: a}
		return m.Matches()
	})
}

type boundedValidation struct {
	admission.ValidationInterface
	policySlots
}

func (b *boundedValidation) Validate(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	return b.evaluate(ctx, func() error { return b.ValidationInterface.Validate(ctx, a, o) })
}
