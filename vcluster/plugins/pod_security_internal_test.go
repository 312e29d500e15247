// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package plugins

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiserver/pkg/admission"
	kubeoptions "k8s.io/kubernetes/pkg/kubeapiserver/options"
	"k8s.io/kubernetes/plugin/pkg/admission/security/podsecurity"
)

// L3: a change of a namespace's labels, also in a dry run, had all its pods checked for a second.
func TestHostileNamespacesHaveTheirPodsCheckedForAShortTime(t *testing.T) {
	o := kubeoptions.NewAdmissionOptions()
	o.GenericAdmission.Decorators = nil // others wrap this one
	BoundPodSecurity(o)
	bounded, ok := o.GenericAdmission.Decorators.Decorate(&podsecurity.Plugin{}, podsecurity.PluginName).(*boundedPodSecurity)
	if !ok {
		t.Fatal("the plugin is not bounded")
	}
	var left time.Duration
	bounded.validate = func(ctx context.Context, _ admission.Attributes, _ admission.ObjectInterfaces) error {
		deadline, _ := ctx.Deadline()
		left = time.Until(deadline)
		return nil
	}
	for resource, limited := range map[string]bool{"namespaces": true, "pods": false} {
		left = 0
		a := admission.NewAttributesRecord(nil, nil, corev1.SchemeGroupVersion.WithKind("x"), "", "", corev1.SchemeGroupVersion.WithResource(resource), "", admission.Update, nil, true, nil)
		if err := bounded.Validate(t.Context(), a, nil); err != nil || limited != (left > 0) || left > podSecurityTimeout {
			t.Errorf("%s: checked until %s from now, %v", resource, left, err)
		}
	}
}
