// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package plugins

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/client-go/informers"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/kubernetes/pkg/apis/core"
	kubeoptions "k8s.io/kubernetes/pkg/kubeapiserver/options"
	"k8s.io/kubernetes/plugin/pkg/admission/limitranger"

	"github.com/berth-dev/berth/bounds"
)

// BoundLimitRanges has no pod get more defaults of LimitRanges than it can hold: each container gets each of each LimitRange.
func BoundLimitRanges(o *kubeoptions.AdmissionOptions, factory informers.SharedInformerFactory) {
	g := o.GenericAdmission
	ranges := factory.Core().V1().LimitRanges().Lister()
	g.Decorators = append(admission.Decorators{admission.DecoratorFunc(func(plugin admission.Interface, _ string) admission.Interface {
		if p, ok := plugin.(*limitranger.LimitRanger); ok {
			return &boundedRanges{p, ranges}
		}
		return plugin
	})}, g.Decorators...)
}

type boundedRanges struct {
	*limitranger.LimitRanger
	ranges corelisters.LimitRangeLister
}

// Admit implements [admission.MutationInterface].
func (b *boundedRanges) Admit(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	if err := b.check(a); err != nil {
		return err
	}
	return b.LimitRanger.Admit(ctx, a, o)
}

func (b *boundedRanges) check(a admission.Attributes) error {
	pod, ok := a.GetObject().(*core.Pod)
	created := a.GetOperation() == admission.Create && a.GetSubresource() == ""
	if !ok || !created && a.GetSubresource() != "resize" { // others get no defaults
		return nil
	}
	ranges, err := b.ranges.LimitRanges(a.GetNamespace()).List(labels.Everything())
	if err != nil {
		return fmt.Errorf("list limit ranges: %w", err)
	}
	names := 0
	for _, r := range ranges {
		for i := range r.Spec.Limits {
			l := &r.Spec.Limits[i]
			names += len(l.Max) + len(l.Min) + len(l.Default) + len(l.DefaultRequest) + len(l.MaxLimitRequestRatio)
		}
	}
	if err := bounds.DefaultedResources.Check(int64(names * (len(pod.Spec.Containers) + len(pod.Spec.InitContainers)))); err != nil {
		return admission.NewForbidden(a, err)
	}
	return nil
}
