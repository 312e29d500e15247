// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package services

import (
	"context"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/berth-dev/berth/syncer/classes"
	"github.com/berth-dev/berth/syncer/engine"
	"github.com/berth-dev/berth/syncer/resources"
	"github.com/berth-dev/berth/translate"
)

// syncIngresses syncs ingresses with a class of the host. Those of other classes are for a controller that the tenant
// runs.
func (s *Syncer) syncIngresses() error {
	k := &engine.Resource[*networkingv1.Ingress]{
		Engine: s.Engine, Name: resources.Ingresses, NameLimit: translate.LimitSubdomain,
		Virtual: s.Informers.Networking().V1().Ingresses().Informer(),
		UpdateHost: func(want, have *networkingv1.Ingress) bool {
			return translate.PushIngress(want, have, s.Host.IngressAnnotations)
		},
		SyncStatus: func(ctx context.Context, v, host *networkingv1.Ingress) (time.Duration, error) {
			status := s.Space.PullIngressStatus(host, s.Host.IsNode)
			if equality.Semantic.DeepEqual(status, v.Status) {
				return 0, nil
			}
			out := v.DeepCopy()
			out.Status = status
			return 0, s.VirtualAPI.Status().Update(ctx, out)
		},
	}
	return addExposure(&exposure[*networkingv1.Ingress]{
		Syncer: s, synced: k,
		hosts: field.NewPath("spec", "rules"),
		toHost: func(v *networkingv1.Ingress) *networkingv1.Ingress {
			return s.Space.Ingress(v, s.Host.IngressAnnotations)
		},
		backends: field.NewPath("spec", "rules").Child("http", "paths", "backend", "service"),
		allowed: func(v *networkingv1.Ingress) (wanted bool, errs field.ErrorList) {
			if wanted, errs = s.ingressClass(v.Spec.IngressClassName); !wanted {
				return false, errs
			}
			if errs = translate.CheckIngress(&v.Spec); len(errs) > 0 {
				return true, errs // it may have too many host names to check
			}
			return true, unclaimed(k, v, field.NewPath("spec", "rules"))
		},
	})
}

// ingressClass reports whether the host serves a class.
func (s *Syncer) ingressClass(class *string) (wanted bool, errs field.ErrorList) {
	path := field.NewPath("spec", "ingressClassName")
	if class == nil {
		return false, field.ErrorList{field.Forbidden(path, "the host does not offer its default class to spaces; set a class that 'kubectl get ingressclasses' lists")}
	}
	return classes.Served[*networkingv1.IngressClass](s.Engine, resources.IngressClasses, s.Informers.Networking().V1().IngressClasses().Informer(), *class, path)
}
