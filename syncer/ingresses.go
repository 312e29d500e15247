// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package syncer

import (
	"context"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/berth-dev/berth/syncer/resources"
	"github.com/berth-dev/berth/translate"
)

// syncIngresses syncs ingresses to the host that name a class of the host's. Those of
// another class are for a controller that the tenant runs itself.
func (s *serviceSyncer) syncIngresses() error {
	k := &syncedResource[*networkingv1.Ingress]{
		Engine: s.Engine, name: resources.Ingresses, nameLimit: translate.LimitSubdomain,
		newObject: func() *networkingv1.Ingress { return &networkingv1.Ingress{} },
		virtual:   s.informers.Networking().V1().Ingresses().Informer(),
		updateHost: func(want, have *networkingv1.Ingress) bool {
			return translate.PushIngress(want, have, s.host.IngressAnnotations)
		},
		syncStatus: func(ctx context.Context, v, host *networkingv1.Ingress) (time.Duration, error) {
			status := s.space.PullIngressStatus(host, s.host.isNode)
			if equality.Semantic.DeepEqual(status, v.Status) {
				return 0, nil
			}
			out := v.DeepCopy()
			out.Status = status
			return 0, s.virtualAPI.Status().Update(ctx, out)
		},
	}
	return addExposure(&exposure[*networkingv1.Ingress]{
		serviceSyncer: s, synced: k,
		hosts: field.NewPath("spec", "rules"),
		toHost: func(v *networkingv1.Ingress) *networkingv1.Ingress {
			return s.space.Ingress(v, s.host.IngressAnnotations)
		},
		backends: field.NewPath("spec", "rules").Child("http", "paths", "backend", "service"),
		allowed: func(v *networkingv1.Ingress) (wanted bool, errs field.ErrorList) {
			if wanted, errs = s.ingressClass(v.Spec.IngressClassName); !wanted {
				return false, errs
			}
			if errs = translate.CheckIngress(&v.Spec); len(errs) > 0 {
				return true, errs // it may hold more host names than are to be looked for
			}
			return true, unclaimed(k, v, field.NewPath("spec", "rules"))
		},
	})
}

// ingressClass reports whether a class is one that the host serves.
func (s *serviceSyncer) ingressClass(class *string) (wanted bool, errs field.ErrorList) {
	path := field.NewPath("spec", "ingressClassName")
	if class == nil {
		return false, field.ErrorList{field.Forbidden(path, "the host's default is not for spaces; name a class, see 'kubectl get ingressclasses'")}
	}
	return served[*networkingv1.IngressClass](s.Engine, resources.IngressClasses, s.informers.Networking().V1().IngressClasses().Informer(), *class, path)
}
