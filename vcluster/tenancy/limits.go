// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package tenancy

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/client-go/informers"
	corelisters "k8s.io/client-go/listers/core/v1"
	networkinglisters "k8s.io/client-go/listers/networking/v1"
	kubeoptions "k8s.io/kubernetes/pkg/kubeapiserver/options"
	"k8s.io/kubernetes/plugin/pkg/admission/limitranger"

	"github.com/berth-dev/berth/access"
	"github.com/berth-dev/berth/vcluster/inside"
)

const (
	// limitsTimeout is how long a request waits for the limit ranges of its namespace. The keeper creates them within milliseconds.
	limitsTimeout = 5 * time.Second
	limitsPoll    = 10 * time.Millisecond
)

// HoldForLimits has pods and claims in a new namespace wait for the namespace's limit ranges and network policies, so that none escapes
// them.
func (t *Tenancy) HoldForLimits(o *kubeoptions.AdmissionOptions, f informers.SharedInformerFactory) {
	if t.source == nil {
		return
	}
	limits, policies := f.Core().V1().LimitRanges().Lister(), f.Networking().V1().NetworkPolicies().Lister()
	g := o.GenericAdmission
	g.Decorators = append(g.Decorators, admission.DecoratorFunc(func(plugin admission.Interface, name string) admission.Interface {
		if name != limitranger.PluginName {
			return plugin
		}
		return limited{plugin, t.source, limits, policies}
	}))
}

// limited is upstream's plugin for limit ranges.
type limited struct {
	admission.Interface
	source   *access.Source
	limits   corelisters.LimitRangeLister
	policies networkinglisters.NetworkPolicyLister
}

// Admit implements [admission.MutationInterface].
func (l limited) Admit(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	if err := l.wait(ctx, a); err != nil {
		return err
	}
	if next, ok := l.Interface.(admission.MutationInterface); ok {
		return next.Admit(ctx, a, o)
	}
	return nil
}

// Validate implements [admission.ValidationInterface].
func (l limited) Validate(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	if next, ok := l.Interface.(admission.ValidationInterface); ok {
		return next.Validate(ctx, a, o)
	}
	return nil
}

func (l limited) wait(ctx context.Context, a admission.Attributes) error {
	if a.GetOperation() != admission.Create || a.GetSubresource() != "" || inside.IsKeeper(ctx) {
		return nil
	}
	switch a.GetResource().GroupResource() {
	case corev1.Resource("pods"), corev1.Resource("persistentvolumeclaims"):
	default:
		return nil
	}
	if n := &l.source.Get().Namespaces; len(n.LimitRanges)+len(n.NetworkPolicies) == 0 || l.exist(a.GetNamespace()) {
		return nil
	}
	err := wait.PollUntilContextTimeout(ctx, limitsPoll, limitsTimeout, false, func(context.Context) (bool, error) { return l.exist(a.GetNamespace()), nil })
	if err != nil {
		return apierrors.NewServiceUnavailable(fmt.Sprintf("the limit ranges and network policies of the tenant do not all exist yet in namespace %s; try again", a.GetNamespace()))
	}
	return nil
}

// exist reports whether a namespace has all limit ranges and network policies of the state.
func (l limited) exist(namespace string) bool {
	for _, want := range l.source.Rules().LimitRanges() {
		if _, err := l.limits.LimitRanges(namespace).Get(want.Name); err != nil {
			return false
		}
	}
	for _, want := range l.source.Rules().NetworkPolicies() {
		if _, err := l.policies.NetworkPolicies(namespace).Get(want.Name); err != nil {
			return false
		}
	}
	return true
}
