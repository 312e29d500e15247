// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package resources

import (
	"slices"
	"sync"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/berth-dev/berth/translate"
)

// Exposure describes objects that lead from outside to services, under host names that each may claim: what all spaces
// share on the host serves them, so that others' claims count as well.
type Exposure struct {
	// Hosts are the host names that an object claims, sorted.
	Hosts func(client.Object) []string
	// Claim is an object of no more than a claim of host names.
	Claim func(of metav1.ObjectMeta, hosts []string) client.Object
	// Services are the names of the services that an object leads to, in its own namespace. Nil: to none.
	Services func(client.Object) []string
	// Secrets are those that an object needs. Nil: none.
	Secrets func(client.Object) []types.NamespacedName
}

// Exposures are the resources of exposures.
var Exposures = sync.OnceValue(func() []Resource {
	return slices.DeleteFunc(Table(), func(r Resource) bool { return r.Exposure == nil })
})

// HostsOf are the host names that an object claims, sorted; none if it is no exposure.
func HostsOf(o client.Object) []string {
	if r, _ := ToHostOf(o); r.Exposure != nil {
		return r.Exposure.Hosts(o)
	}
	return nil
}

// ServicesOf are the names of the services that an exposure leads to, in its own namespace.
func ServicesOf(o client.Object) []string {
	if r, _ := ToHostOf(o); r.Exposure != nil && r.Exposure.Services != nil {
		return r.Exposure.Services(o)
	}
	return nil
}

// SecretsOf are the secrets that an exposure needs.
func SecretsOf(o client.Object) []types.NamespacedName {
	if r, _ := ToHostOf(o); r.Exposure != nil && r.Exposure.Secrets != nil {
		return r.Exposure.Secrets(o)
	}
	return nil
}

// of is a function of one type's objects as one of any, of which others have nothing.
func of[T client.Object, V any](f func(T) []V) func(client.Object) []V {
	return func(o client.Object) []V {
		if typed, ok := o.(T); ok {
			return f(typed)
		}
		return nil
	}
}

func ingressExposure() *Exposure {
	return &Exposure{
		Hosts: of(translate.IngressHosts), Services: of(translate.IngressServices), Secrets: of(translate.IngressSecrets),
		Claim: func(of metav1.ObjectMeta, hosts []string) client.Object {
			out := &networkingv1.Ingress{ObjectMeta: of}
			for _, host := range hosts {
				out.Spec.Rules = append(out.Spec.Rules, networkingv1.IngressRule{Host: host})
			}
			return out
		},
	}
}

func gatewayExposure() *Exposure {
	return &Exposure{
		Hosts: of(translate.GatewayHosts), Secrets: of(translate.GatewaySecrets),
		Claim: func(of metav1.ObjectMeta, hosts []string) client.Object {
			out := &gatewayv1.Gateway{ObjectMeta: of}
			for _, host := range hosts {
				out.Spec.Listeners = append(out.Spec.Listeners, gatewayv1.Listener{Hostname: ptr.To(gatewayv1.Hostname(host))})
			}
			return out
		},
	}
}

func routeExposure() *Exposure {
	return &Exposure{
		Hosts: of(translate.HTTPRouteHosts), Services: of(translate.HTTPRouteServices),
		Claim: func(of metav1.ObjectMeta, hosts []string) client.Object {
			out := &gatewayv1.HTTPRoute{ObjectMeta: of}
			for _, host := range hosts {
				out.Spec.Hostnames = append(out.Spec.Hostnames, gatewayv1.Hostname(host))
			}
			return out
		},
	}
}
