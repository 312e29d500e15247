// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package hostpolicy

import (
	"fmt"

	admissionv1 "k8s.io/api/admissionregistration/v1"

	"github.com/berth-dev/berth/bounds"
	"github.com/berth-dev/berth/internal/netrange"
	"github.com/berth-dev/berth/translate"
)

// closedRanges are variables for the ranges that no pod of a space reaches, each as
// text and as a network, and for those of them that no endpoint is in.
func closedRanges() []admissionv1.Variable {
	both := func(of string) string { return of + ".map(c, {'text': dyn(c), 'net': dyn(cidr(c))})" }
	own := "namespaceObject.metadata.?annotations['" + AnnotationClosed + "'].orValue('').split(',').filter(c, c != '')"
	return []admissionv1.Variable{
		{Name: "closed", Expression: both("(" + quoted(netrange.Strings(netrange.Closed())...) + " + " + own + ")")},
		{Name: "unroutable", Expression: quoted(netrange.Strings(netrange.Unroutable())...) + ".map(c, cidr(c))"},
	}
}

// networkPolicies keeps network policies, which add up, to what those of the space's
// isolation let through (see translate.Everyone and Callers).
func networkPolicies() []admissionv1.Validation {
	// The one peer in other namespaces that may be let in: those that the admin has labelled.
	const callers = "has(p.namespaceSelector) && !has(p.podSelector) && size(p.namespaceSelector.?matchExpressions.orValue([])) == 0 && " +
		"p.namespaceSelector.?matchLabels.orValue({}) == {'" + translate.LabelReachesPods + "': 'true'}"
	// A closed range that lies within a block is an exception of it, as it is written in the list. An API
	// server takes no exception that is not within its block.
	const block = "[cidr(p.ipBlock.cidr)].all(b, [p.ipBlock.?except.orValue([])].all(except, variables.closed.all(c, c.text in except || !c.net.containsCIDR(b) && !b.containsCIDR(c.net))))"
	own := func(peers string) string {
		return peers + ".all(peers, size(peers) > 0 && peers.all(p, !has(p.namespaceSelector) && has(p.podSelector) != has(p.ipBlock) && (!has(p.ipBlock) || " + block + ")))"
	}
	few := func(rules, peers string) string {
		return atMost("object.spec.?"+rules+".orValue([]).map(r, size(r.?"+peers+".orValue([]))).sum()", mostPeers())
	}
	const message = "a space's network policies may allow only the space's own pods and public addresses: each rule must list its peers in from or to, by podSelector or ipBlock"
	return []admissionv1.Validation{
		Refuse(message, about("networkpolicies", own("object.spec.?ingress.orValue([]).map(r, r.?from.orValue([]).filter(p, !("+callers+")))"))),
		Refuse(message, about("networkpolicies", own("object.spec.?egress.orValue([]).map(r, r.?to.orValue([]))"))),
		Refuse(fmt.Sprintf("a space's network policies may have at most %d peers in spec.ingress and as many in spec.egress", mostPeers()),
			about("networkpolicies", few("ingress", "from")+" && "+few("egress", "to"))),
	}
}

// mostPeers are those of a policy on the host in a direction. A rule without peers
// becomes one with [translate.Callers], of which there are four.
func mostPeers() int64 { return 4 * bounds.PolicyPeers.Bound().Default }

func services() []admissionv1.Validation {
	const exposed = "object.spec.?type.orValue('') in ['NodePort', 'LoadBalancer']"
	return []admissionv1.Validation{
		// Between the two writes the syncer deletes the endpoints that the tenant wrote (CVE-2021-25740).
		Refuse("a space's services may have no spec.externalIPs, and those of type NodePort or LoadBalancer need a spec.selector, both before and after the change",
			about("services", "size(object.spec.?externalIPs.orValue([])) == 0 && "+
				"(!("+exposed+") || size(object.spec.?selector.orValue({})) > 0 && (oldObject == null || size(oldObject.spec.?selector.orValue({})) > 0))")),
		Refuse("a space's services may choose neither spec.loadBalancerIP nor a spec.loadBalancerClass that the admin has not allowed",
			about("services", kept("spec.loadBalancerIP")+" && ("+kept("spec.loadBalancerClass")+" || "+says("adds", "('loadBalancerClass:' + object.spec.loadBalancerClass)")+")")),
		Refuse(fmt.Sprintf("a space's services may have at most %d ports, and spec.selector may select only the space's own pods", bounds.ServicePorts.Bound().Default),
			about("services", "("+atMost("size(object.spec.?ports.orValue([]))", bounds.ServicePorts.Bound().Default)+" || "+
				// Of one that is older than the bound the selector still changes.
				"oldObject != null && size(object.spec.?ports.orValue([])) <= size(oldObject.spec.?ports.orValue([]))) && "+
				"(size(object.spec.?selector.orValue({})) == 0 || object.spec.selector[?'"+translate.LabelSpace+"'].orValue('') == object.metadata.labels['"+translate.LabelSpace+"'])")),
	}
}

// endpointSlices bounds what each node of the host programs for a slice, and keeps
// addresses away from those that mean something to the host alone. A pod's address
// may be in any other range.
func endpointSlices() []admissionv1.Validation {
	addresses := "object.endpoints.map(e, size(e.addresses)).sum()"
	return []admissionv1.Validation{
		Refuse(fmt.Sprintf("a space's endpoint slices may have at most %d addresses and %d ports, and at most %d addresses multiplied by ports",
			bounds.EndpointAddresses.Bound().Default, bounds.EndpointPorts.Bound().Default, bounds.EndpointTargets.Bound().Default),
			about("endpointslices", "object.endpoints == null || [size(object.?ports.orValue(null) == null ? [] : object.ports)].all(ports, "+
				atMost("ports", bounds.EndpointPorts.Bound().Default)+" && "+atMost(addresses, bounds.EndpointAddresses.Bound().Default)+" && "+
				atMost(addresses+" * ports", bounds.EndpointTargets.Bound().Default)+")")),
		Refuse("a space's endpoint slices may not have endpoints[].addresses in ranges that are special on the host's network, such as loopback and link-local addresses",
			about("endpointslices", "object.endpoints == null || object.addressType == 'FQDN' || "+
				"object.endpoints.all(e, e.addresses.all(a, [ip(a)].all(i, variables.unroutable.all(c, !c.containsIP(i)))))")),
	}
}

func ingresses() []admissionv1.Validation {
	const named = "%[1]s != '' && !%[1]s.contains('*')"
	return []admissionv1.Validation{
		Refuse("a space's ingresses need a host without wildcard in each of spec.rules and spec.tls, and may have no spec.defaultBackend",
			about("ingresses", "!has(object.spec.defaultBackend) && object.spec.?rules.orValue([]).all(r, "+fmt.Sprintf(named, "r.?host.orValue('')")+") && "+
				"object.spec.?tls.orValue([]).all(t, size(t.?hosts.orValue([])) > 0 && t.hosts.all(h, "+fmt.Sprintf(named, "h")+"))")),
		Refuse(fmt.Sprintf("a space's ingresses may have at most %d hosts and %d paths", bounds.IngressHosts.Bound().Default, bounds.IngressPaths.Bound().Default),
			about("ingresses", atMost("size(object.spec.?rules.orValue([])) + object.spec.?tls.orValue([]).map(t, size(t.?hosts.orValue([]))).sum()", bounds.IngressHosts.Bound().Default)+" && "+
				atMost("object.spec.?rules.orValue([]).map(r, size(r.?http.?paths.orValue([]))).sum()", bounds.IngressPaths.Bound().Default))),
	}
}

// gateways keeps gateways and routes to the space's namespace, to names that they
// say, and away from what is the host's.
func gateways() []admissionv1.Validation {
	const own = "(!has(r.namespace) || r.namespace == request.namespace)"
	return []admissionv1.Validation{
		Refuse("a space's gateways may have neither spec.addresses nor spec.infrastructure, and each listener must use HTTP at port 80, HTTPS at port 443, or TLS at port 443 with mode Passthrough, and may have no wildcard hostname, no TLS options, and only routes and certificates of the space",
			about("gateways", "!has(object.spec.addresses) && !has(object.spec.infrastructure) && "+
				"object.spec.listeners.all(l, (l.protocol == 'HTTP' && l.port == 80 || l.protocol in ['HTTPS', 'TLS'] && l.port == 443) && "+
				"l.?tls.?mode.orValue('Terminate') == (l.protocol == 'TLS' ? 'Passthrough' : 'Terminate') && "+
				"l.?hostname.orValue('*') != '' && !l.?hostname.orValue('*').contains('*') && "+
				"l.?allowedRoutes.?namespaces.?from.orValue('Same') == 'Same' && l.?allowedRoutes.?kinds.orValue([]).all(k, k.kind in "+quoted(translate.RouteKinds()...)+") && "+
				"size(l.?tls.?options.orValue({})) == 0 && l.?tls.?certificateRefs.orValue([]).all(r, "+own+"))")),
		Refuse("a space's HTTPRoutes may attach only to the space's gateways and lead only to its services: parentRefs and backendRefs must be in the same namespace, and no filter may be an ExtensionRef",
			about("httproutes", "object.spec.?parentRefs.orValue([]).all(r, "+own+") && "+
				"object.spec.?rules.orValue([]).all(rule, rule.?filters.orValue([]).all(f, f.type != 'ExtensionRef' && (!has(f.requestMirror) || [f.requestMirror.backendRef].all(r, "+own+"))) && "+
				"rule.?backendRefs.orValue([]).all(r, r.?group.orValue('') == '' && r.?kind.orValue('Service') == 'Service' && "+own+"))")),
	}
}
