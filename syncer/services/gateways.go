// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package services

import (
	"context"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/tools/cache"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/berth-dev/berth/bounds"
	"github.com/berth-dev/berth/syncer/classes"
	"github.com/berth-dev/berth/syncer/engine"
	"github.com/berth-dev/berth/syncer/resources"
	"github.com/berth-dev/berth/translate"
)

// syncGateways syncs gateways with a class of the host. Those of other classes, and their routes, are for a controller
// that the tenant runs.
func (s *Syncer) syncGateways() error {
	informer, err := s.FromExtension(resources.Gateways)
	if err != nil {
		return err
	}
	k := &engine.Resource[*gatewayv1.Gateway]{
		Engine: s.Engine, Name: resources.Gateways, NameLimit: translate.LimitLabel, // controllers make a label of it
		Virtual:    informer,
		UpdateHost: translate.PushGateway,
		Bound:      s.Bound(bounds.Gateways, "gateways"),
		SyncStatus: func(ctx context.Context, v, host *gatewayv1.Gateway) (time.Duration, error) {
			status := s.Space.PullGatewayStatus(v, host, s.Host.IsNode)
			if equality.Semantic.DeepEqual(status, v.Status) {
				return 0, nil
			}
			out := v.DeepCopy()
			out.Status = status
			return 0, s.VirtualAPI.Status().Update(ctx, out)
		},
	}
	return addExposure(&exposure[*gatewayv1.Gateway]{
		Syncer: s, synced: k, toHost: s.Space.Gateway, hosts: field.NewPath("spec", "listeners"),
		allowed: func(v *gatewayv1.Gateway) (bool, field.ErrorList) {
			if wanted, errs := s.gatewayClass(v); !wanted {
				return false, errs
			}
			if errs := append(engine.CheckUnknown(v), translate.CheckGateway(v)...); len(errs) > 0 {
				return true, errs
			}
			return true, unclaimed(k, v, field.NewPath("spec", "listeners"))
		},
	})
}

// gatewayClass reports whether the host serves a gateway's class.
func (s *Syncer) gatewayClass(v *gatewayv1.Gateway) (bool, field.ErrorList) {
	path, name := field.NewPath("spec", "gatewayClassName"), string(v.Spec.GatewayClassName)
	if informer := s.ExtensionInformer(resources.GatewayClasses); informer != nil {
		return classes.Served[*gatewayv1.GatewayClass](s.Engine, resources.GatewayClasses, informer, name, path)
	}
	return false, nil // the host has no classes
}

// indexGateways is the index of a space's routes by their gateways.
const indexGateways = "berth.dev/gateways"

// syncHTTPRoutes syncs routes that attach to gateways that the host serves.
func (s *Syncer) syncHTTPRoutes() error {
	parents, err := s.FromExtension(resources.Gateways)
	if err != nil {
		return err
	}
	informer, err := s.FromExtension(resources.HTTPRoutes)
	if err != nil {
		return err
	}
	err = informer.AddIndexers(cache.Indexers{indexGateways: func(obj any) (names []string, _ error) {
		if v, ok := obj.(*gatewayv1.HTTPRoute); ok {
			for i := range v.Spec.ParentRefs {
				if at, ok := translate.ParentGateway(v, &v.Spec.ParentRefs[i]); ok {
					names = append(names, at.String())
				}
			}
		}
		return names, nil
	}})
	if err != nil {
		return err
	}
	isServed := func(at types.NamespacedName) bool {
		v, exists := engine.Stored[*gatewayv1.Gateway](parents, at)
		if !exists {
			return false
		}
		served, _ := s.gatewayClass(v)
		return served
	}
	k := &engine.Resource[*gatewayv1.HTTPRoute]{
		Engine: s.Engine, Name: resources.HTTPRoutes, NameLimit: translate.LimitSubdomain,
		Virtual:    informer,
		UpdateHost: translate.PushHTTPRoute,
		Bound:      s.Bound(bounds.Routes, "routes"),
		SyncStatus: func(ctx context.Context, v, host *gatewayv1.HTTPRoute) (time.Duration, error) {
			status := s.Space.PullHTTPRouteStatus(v, host)
			if equality.Semantic.DeepEqual(status, v.Status) {
				return 0, nil
			}
			out := v.DeepCopy()
			out.Status = status
			return 0, s.VirtualAPI.Status().Update(ctx, out)
		},
	}
	err = addExposure(&exposure[*gatewayv1.HTTPRoute]{
		Syncer: s, synced: k,
		hosts:    field.NewPath("spec", "hostnames"),
		ready:    func() bool { return s.Settled(resources.Gateways) },
		toHost:   func(v *gatewayv1.HTTPRoute) *gatewayv1.HTTPRoute { return s.Space.HTTPRoute(v, isServed) },
		backends: field.NewPath("spec", "rules").Child("backendRefs"),
		allowed: func(v *gatewayv1.HTTPRoute) (wanted bool, errs field.ErrorList) {
			for i := range v.Spec.ParentRefs {
				at, ok := translate.ParentGateway(v, &v.Spec.ParentRefs[i])
				if !ok || !isServed(at) {
					continue
				}
				wanted = true
				if at.Namespace != v.Namespace {
					errs = append(errs, field.Forbidden(field.NewPath("spec", "parentRefs").Index(i).Child("namespace"),
						"a route must be in the namespace of its gateway; create the route or a gateway there"))
				}
			}
			if !wanted {
				return false, nil
			}
			if errs = slices.Concat(errs, engine.CheckUnknown(v), translate.CheckHTTPRoute(v)); len(errs) > 0 {
				return true, errs
			}
			return true, unclaimed(k, v, field.NewPath("spec", "hostnames"))
		},
	})
	if err != nil {
		return err
	}
	enqueueByIndex(k, parents, indexGateways)
	return nil
}
