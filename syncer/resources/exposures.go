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

// Exposure describes a resource whose objects route requests from outside to services by host name. All spaces share
// the controllers on the host that serve them, so a host name that one space claims is taken for all others.
type Exposure struct {
	// Hosts returns the host names that an object claims, sorted.
	Hosts func(client.Object) []string
	// Claim returns an object that contains only a claim of host names.
	Claim func(of metav1.ObjectMeta, hosts []string) client.Object
	// Services returns the names of the services that an object routes to, in its own namespace. Nil means none.
	Services func(client.Object) []string
	// Secrets returns the secrets that an object needs. Nil means none.
	Secrets func(client.Object) []types.NamespacedName
}

// Exposures returns the resources that are exposures.
var Exposures = sync.OnceValue(func() []Resource {
	return slices.DeleteFunc(Table(), func(r Resource) bool { return r.Exposure == nil })
})

// HostsOf returns the host names that an object claims, sorted; none if it is no exposure.
func HostsOf(o client.Object) []string {
	if r, _ := ToHostOf(o); r.Exposure != nil {
		return r.Exposure.Hosts(o)
	}
	return nil
}

// ServicesOf returns the names of the services that an exposure routes to, in its own namespace.
func ServicesOf(o client.Object) []string {
	if r, _ := ToHostOf(o); r.Exposure != nil && r.Exposure.Services != nil {
		return r.Exposure.Services(o)
	}
	return nil
}

// SecretsOf returns the secrets that an exposure needs.
func SecretsOf(o client.Object) []types.NamespacedName {
	if r, _ := ToHostOf(o); r.Exposure != nil && r.Exposure.Secrets != nil {
		return r.Exposure.Secrets(o)
	}
	return nil
}

// of adapts a function for one type to objects of any type. For other types, it returns nil.
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
