// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package tenancy

import admissionv1 "k8s.io/api/admissionregistration/v1"

const gatewayGroup = "gateway.networking.k8s.io"

// gateways keeps gateways and routes to the space's namespace, to names that they
// say, and away from what is the host's.
func gateways() []admissionv1.Validation {
	const own = "(!has(r.namespace) || r.namespace == request.namespace)"
	return []admissionv1.Validation{
		refuse("a space's gateways may claim no address and no infrastructure of the host's, and listen at ports 80 and 443 only, for a host name each and for the space's own HTTPRoutes",
			about("gateways", "!has(object.spec.addresses) && !has(object.spec.infrastructure) && "+
				"object.spec.listeners.all(l, (l.protocol == 'HTTP' && l.port == 80 || l.protocol == 'HTTPS' && l.port == 443) && "+
				"l.?hostname.orValue('*') != '' && !l.?hostname.orValue('*').contains('*') && "+
				"l.?allowedRoutes.?namespaces.?from.orValue('Same') == 'Same' && l.?allowedRoutes.?kinds.orValue([]).all(k, k.kind == 'HTTPRoute') && "+
				"size(l.?tls.?options.orValue({})) == 0 && l.?tls.?certificateRefs.orValue([]).all(r, "+own+"))")),
		refuse("a space's routes may attach to its own gateways, and lead to its own services, only",
			about("httproutes", "object.spec.?parentRefs.orValue([]).all(r, "+own+") && "+
				"object.spec.?rules.orValue([]).all(rule, rule.?filters.orValue([]).all(f, f.type != 'ExtensionRef' && (!has(f.requestMirror) || [f.requestMirror.backendRef].all(r, "+own+"))) && "+
				"rule.?backendRefs.orValue([]).all(r, r.?group.orValue('') == '' && r.?kind.orValue('Service') == 'Service' && "+own+"))")),
	}
}
