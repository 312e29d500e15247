// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package plugins

import (
	"context"

	"golang.org/x/sync/semaphore"
	"k8s.io/apiserver/pkg/admission"
	mutatingpolicy "k8s.io/apiserver/pkg/admission/plugin/policy/mutating"
	validatingpolicy "k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
	kubeoptions "k8s.io/kubernetes/pkg/kubeapiserver/options"

	"github.com/berth-dev/berth/vcluster/requests"
)

// BoundPolicies has the evaluation of admission policies take one of the space's slots for validation. CEL counts what a regular
// expression costs after it was matched. Requests of the space's own controllers take one, too: they write what tenants ask
// for. Where no policy is bound, nothing is evaluated, and nobody waits.
func BoundPolicies(o *kubeoptions.AdmissionOptions, slots *semaphore.Weighted, factory informers.SharedInformerFactory) {
	g := o.GenericAdmission
	registration := factory.Admissionregistration().V1()
	g.Decorators = append(admission.Decorators{admission.DecoratorFunc(func(plugin admission.Interface, _ string) admission.Interface {
		switch p := plugin.(type) {
		case *mutatingpolicy.Plugin:
			return &boundedMutation{p, policySlots{slots, anyOf(registration.MutatingAdmissionPolicyBindings().Informer())}}
		case *validatingpolicy.Plugin:
			return &boundedValidation{p, policySlots{slots, anyOf(registration.ValidatingAdmissionPolicyBindings().Informer())}}
		}
		return plugin
	})}, g.Decorators...)
}

// anyOf reports whether an informer has any objects, or does not know yet.
func anyOf(i cache.SharedIndexInformer) func() bool {
	return func() bool { return !i.HasSynced() || len(i.GetStore().ListKeys()) > 0 }
}

// policySlots are those that a plugin for policies takes.
type policySlots struct {
	slots *semaphore.Weighted
	bound func() bool // whether any policy is in force, or may be
}

// evaluate calls f while it holds a slot. No other of the same request is held: that of a write's validation is taken after
// policies that change objects, and given back before those that validate them. Policies wait for nobody that needs a slot.
func (p policySlots) evaluate(ctx context.Context, f func() error) error {
	if !p.bound() {
		return f()
	}
	if err := requests.AcquireValidation(ctx, p.slots); err != nil {
		return err
	}
	defer p.slots.Release(1)
	return f()
}

type boundedMutation struct {
	admission.MutationInterface
	policySlots
}

func (b *boundedMutation) Admit(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	ctx = withPolicyPatches(ctx)
	return b.evaluate(ctx, func() error { return b.MutationInterface.Admit(ctx, a, o) })
}

type boundedValidation struct {
	admission.ValidationInterface
	policySlots
}

func (b *boundedValidation) Validate(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	return b.evaluate(ctx, func() error { return b.ValidationInterface.Validate(ctx, a, o) })
}
