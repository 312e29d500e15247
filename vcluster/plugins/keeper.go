// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package plugins

import (
	"context"

	"k8s.io/apiserver/pkg/admission"
	mutatingpolicy "k8s.io/apiserver/pkg/admission/plugin/policy/mutating"
	validatingpolicy "k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/admission/plugin/resourcequota"
	mutatingwebhook "k8s.io/apiserver/pkg/admission/plugin/webhook/mutating"
	validatingwebhook "k8s.io/apiserver/pkg/admission/plugin/webhook/validating"
	kubeoptions "k8s.io/kubernetes/pkg/kubeapiserver/options"

	"github.com/berth-dev/berth/vcluster/inside"
)

// PassKeeper lets the requests pass that keep objects of the space's tenant where users of the space decide what passes: webhooks,
// policies, and quotas. Upstream's other plugins and Berth's see them.
func PassKeeper(o *kubeoptions.AdmissionOptions) {
	g := o.GenericAdmission
	g.Decorators = append(g.Decorators, admission.DecoratorFunc(func(plugin admission.Interface, name string) admission.Interface {
		switch name {
		case mutatingwebhook.PluginName, validatingwebhook.PluginName, mutatingpolicy.PluginName, validatingpolicy.PluginName, resourcequota.PluginName:
			return passedByKeeper{plugin}
		}
		return plugin
	}))
}

type passedByKeeper struct{ admission.Interface }

// Admit implements [admission.MutationInterface].
func (p passedByKeeper) Admit(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	if next, ok := p.Interface.(admission.MutationInterface); ok && !inside.IsKeeper(ctx) {
		return next.Admit(ctx, a, o)
	}
	return nil
}

// Validate implements [admission.ValidationInterface].
func (p passedByKeeper) Validate(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	if next, ok := p.Interface.(admission.ValidationInterface); ok && !inside.IsKeeper(ctx) {
		return next.Validate(ctx, a, o)
	}
	return nil
}
