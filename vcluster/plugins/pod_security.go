// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package plugins

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiserver/pkg/admission"
	kubeoptions "k8s.io/kubernetes/pkg/kubeapiserver/options"
	"k8s.io/kubernetes/plugin/pkg/admission/security/podsecurity"
)

// podSecurityTimeout is how long the labels of a namespace may be checked. Upstream checks the namespace's pods for half of what is
// left, or for a second: of a processor, for each change of a label, dry runs included. It warns of pods that it did not check.
const podSecurityTimeout = 400 * time.Millisecond

// BoundPodSecurity has a change of a namespace's labels compared with its pods for a short time only.
func BoundPodSecurity(o *kubeoptions.AdmissionOptions) {
	g := o.GenericAdmission
	g.Decorators = append(admission.Decorators{admission.DecoratorFunc(func(plugin admission.Interface, _ string) admission.Interface {
		if p, ok := plugin.(*podsecurity.Plugin); ok {
			return &boundedPodSecurity{p, p.Validate}
		}
		return plugin
	})}, g.Decorators...)
}

type boundedPodSecurity struct {
	*podsecurity.Plugin
	validate func(context.Context, admission.Attributes, admission.ObjectInterfaces) error
}

// Validate implements [admission.ValidationInterface].
func (b *boundedPodSecurity) Validate(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	if a.GetResource().GroupResource() == corev1.Resource("namespaces") {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, podSecurityTimeout)
		defer cancel()
	}
	return b.validate(ctx, a, o)
}
