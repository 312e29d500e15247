// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package translate_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/berth-dev/berth/bounds"
	"github.com/berth-dev/berth/translate"
	"github.com/berth-dev/berth/translate/sample"
)

// N1: conditions say of which generation of the space's object they speak, and
// nothing in the host's words.
func TestConditionsSpeakOfTheSpacesGeneration(t *testing.T) {
	v := &gatewayv1.Gateway{ObjectMeta: metav1.ObjectMeta{Generation: 7}}
	for name, test := range map[string]struct {
		observed, want int64
		reason         string
	}{
		"latest":  {3, 7, "the controller has seen all that the space wrote"},
		"earlier": {2, 6, "it has not seen the latest"},
		"never":   {0, 0, "the default of the definition"},
	} {
		host := &gatewayv1.Gateway{ObjectMeta: metav1.ObjectMeta{Generation: 3}}
		host.Status.Conditions = []metav1.Condition{{Type: "Accepted", Message: "on 10.0.0.1", ObservedGeneration: test.observed}, {Type: "Own"}}
		got := sample.Demo().PullGatewayStatus(v, host, nil).Conditions
		if len(got) != 1 || got[0].ObservedGeneration != test.want || got[0].Message != "" {
			t.Errorf("%s: %v, want generation %d: %s", name, got, test.want, test.reason)
		}
	}
}

// A tenant may take the bounds out of its own definition: it pays for that alone.
func TestRoutesAndGatewaysOfTooManyPartsAreRefusedAsAWhole(t *testing.T) {
	route := &gatewayv1.HTTPRoute{}
	for i := range 100_000 {
		route.Spec.Hostnames = append(route.Spec.Hostnames, gatewayv1.Hostname(fmt.Sprintf("h%d.example.com", i)))
	}
	if errs := translate.CheckHTTPRoute(route); len(errs) != 1 || !strings.Contains(errs[0].Error(), "100000 hosts, at most 16") {
		t.Errorf("there are %d errors", len(errs))
	}
	gateway := &gatewayv1.Gateway{}
	for range bounds.GatewayListeners.Max() + 1 {
		gateway.Spec.Listeners = append(gateway.Spec.Listeners, gatewayv1.Listener{Port: 80, Protocol: gatewayv1.HTTPProtocolType, Hostname: ptr.To(gatewayv1.Hostname("a.example"))})
	}
	if errs := translate.CheckGateway(gateway); len(errs) != 1 || !strings.Contains(errs[0].Error(), "listeners") {
		t.Errorf("there are %v", errs)
	}
}

// M4: the bounds are where they are said to be: what reaches them passes, one more
// is refused with what to do.
func TestRoutesAndGatewaysMayBeAsLargeAsTheirBounds(t *testing.T) {
	gateway := func(listeners int) *gatewayv1.Gateway {
		v := &gatewayv1.Gateway{}
		for range listeners {
			v.Spec.Listeners = append(v.Spec.Listeners, gatewayv1.Listener{Port: 80, Protocol: gatewayv1.HTTPProtocolType, Hostname: ptr.To(gatewayv1.Hostname("a.example"))})
		}
		return v
	}
	route := func(hosts, rules, backends int) *gatewayv1.HTTPRoute {
		v := &gatewayv1.HTTPRoute{Spec: gatewayv1.HTTPRouteSpec{Rules: make([]gatewayv1.HTTPRouteRule, rules)}}
		for range hosts {
			v.Spec.Hostnames = append(v.Spec.Hostnames, "a.example")
		}
		for i := range backends {
			rule := &v.Spec.Rules[i%rules]
			rule.BackendRefs = append(rule.BackendRefs, gatewayv1.HTTPBackendRef{})
		}
		return v
	}
	hosts, rules, backends := bounds.RouteHosts.Max(), bounds.RouteRules.Max(), bounds.RouteBackends.Max()
	for name, test := range map[string]struct {
		errs field.ErrorList
		says string // "" if it passes
	}{
		"as many listeners":      {translate.CheckGateway(gateway(bounds.GatewayListeners.Max())), ""},
		"a listener too many":    {translate.CheckGateway(gateway(bounds.GatewayListeners.Max() + 1)), "65 listeners, at most 64"},
		"as many of all":         {translate.CheckHTTPRoute(route(hosts, rules, backends)), ""},
		"a host name too many":   {translate.CheckHTTPRoute(route(hosts+1, rules, backends)), "17 hosts, at most 16"},
		"a rule too many":        {translate.CheckHTTPRoute(route(hosts, rules+1, backends)), "17 rules, at most 16"},
		"a backend too many":     {translate.CheckHTTPRoute(route(hosts, rules, backends+1)), "257 backends, at most 256"},
		"too many in one rule":   {translate.CheckHTTPRoute(route(hosts, 1, backends+1)), "257 backends, at most 256"},
		"neither names nor more": {translate.CheckHTTPRoute(route(0, 1, 0)), ""},
	} {
		if (len(test.errs) == 0) != (test.says == "") || len(test.errs) > 1 || test.says != "" && !strings.Contains(test.errs[0].Error(), test.says) {
			t.Errorf("%s: %v", name, test.errs)
		}
	}
}

// S1, S2: listeners have the protocols and ports by which tenants can share them, and say which routes may attach.
func TestListenersTellHostNamesAndRoutes(t *testing.T) {
	passthrough := &gatewayv1.GatewayTLSConfig{Mode: ptr.To(gatewayv1.TLSModePassthrough)}
	kinds := func(kinds ...gatewayv1.Kind) *gatewayv1.AllowedRoutes {
		routes := &gatewayv1.AllowedRoutes{}
		for _, kind := range kinds {
			routes.Kinds = append(routes.Kinds, gatewayv1.RouteGroupKind{Kind: kind})
		}
		return routes
	}
	for name, test := range map[string]struct {
		listener gatewayv1.Listener
		says     string // why it is refused
	}{
		"HTTP":                         {listener: gatewayv1.Listener{Protocol: gatewayv1.HTTPProtocolType, Port: 80}},
		"HTTPS":                        {listener: gatewayv1.Listener{Protocol: gatewayv1.HTTPSProtocolType, Port: 443, TLS: &gatewayv1.GatewayTLSConfig{}}},
		"TLS that passes through":      {listener: gatewayv1.Listener{Protocol: gatewayv1.TLSProtocolType, Port: 443, TLS: passthrough}},
		"TLS without a mode":           {gatewayv1.Listener{Protocol: gatewayv1.TLSProtocolType, Port: 443}, "set the mode Passthrough"},
		"TLS for the host's end":       {gatewayv1.Listener{Protocol: gatewayv1.TLSProtocolType, Port: 443, TLS: &gatewayv1.GatewayTLSConfig{}}, "use Passthrough for protocol TLS"},
		"HTTPS that passes through":    {gatewayv1.Listener{Protocol: gatewayv1.HTTPSProtocolType, Port: 443, TLS: passthrough}, "use Terminate for protocol HTTPS"},
		"TLS at a port of its own":     {gatewayv1.Listener{Protocol: gatewayv1.TLSProtocolType, Port: 8443, TLS: passthrough}, "port 443 for HTTPS and TLS"},
		"TCP":                          {gatewayv1.Listener{Protocol: gatewayv1.TCPProtocolType, Port: 5432}, "use one of these"},
		"routes of several kinds":      {listener: gatewayv1.Listener{Protocol: gatewayv1.HTTPProtocolType, Port: 80, AllowedRoutes: kinds("HTTPRoute", "GRPCRoute")}},
		"routes that no host name has": {gatewayv1.Listener{Protocol: gatewayv1.HTTPProtocolType, Port: 80, AllowedRoutes: kinds("TCPRoute")}, "serve HTTPRoutes, GRPCRoutes, and TLSRoutes"},
	} {
		v := &gatewayv1.Gateway{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "g"}}
		test.listener.Hostname = ptr.To(gatewayv1.Hostname("a.example"))
		v.Spec.Listeners = []gatewayv1.Listener{test.listener}
		errs := translate.CheckGateway(v)
		if (len(errs) == 0) != (test.says == "") || len(errs) > 1 || test.says != "" && !strings.Contains(errs[0].Error(), test.says) {
			t.Errorf("%s: %v", name, errs)
		}
		if test.says != "" {
			continue
		}
		host := sample.Demo().Gateway(v).Spec.Listeners[0]
		var asked, allowed []gatewayv1.Kind
		if v.Spec.Listeners[0].AllowedRoutes != nil {
			for _, kind := range v.Spec.Listeners[0].AllowedRoutes.Kinds {
				asked = append(asked, kind.Kind)
			}
		}
		for _, kind := range host.AllowedRoutes.Kinds {
			allowed = append(allowed, kind.Kind)
		}
		if !slices.Equal(asked, allowed) || *host.AllowedRoutes.Namespaces.From != gatewayv1.NamespacesFromSame {
			t.Errorf("%s: the host's listener allows %+v", name, host.AllowedRoutes)
		}
	}
}
