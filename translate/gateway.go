// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package translate

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/berth-dev/berth/bounds"
)

// GatewayController is the controller that the space sees in place of the host's gateway controllers.
const GatewayController = Domain + "/gateway"

// listenerPorts are the ports that a space's gateways may use, by protocol. Some controllers open each port on nodes,
// others open it for all gateways at once. These protocols tell the host name that a client wants, so that tenants can share a port.
func listenerPorts() map[gatewayv1.ProtocolType]gatewayv1.PortNumber {
	return map[gatewayv1.ProtocolType]gatewayv1.PortNumber{gatewayv1.HTTPProtocolType: 80, gatewayv1.HTTPSProtocolType: 443, gatewayv1.TLSProtocolType: 443}
}

// RouteKinds are the kinds of routes that a listener of a space may allow. All but HTTPRoute exist on the host if a ResourceSync syncs them.
func RouteKinds() []string {
	return []string{"HTTPRoute", "GRPCRoute", "TLSRoute"}
}

// tlsMode is the mode of a listener's TLS. Clients of a listener of protocol TLS are connected to pods of the space, which have the
// certificate.
func tlsMode(l *gatewayv1.Listener) gatewayv1.TLSModeType {
	if l.Protocol == gatewayv1.TLSProtocolType {
		return gatewayv1.TLSModePassthrough
	}
	return gatewayv1.TLSModeTerminate
}

// CheckGateway returns an error for each field of a gateway that the host can't allow a tenant. Some controllers serve
// all gateways at one address.
func CheckGateway(v *gatewayv1.Gateway) (errs field.ErrorList) {
	path := field.NewPath("spec")
	forbid := func(path *field.Path, set bool, remedy string) {
		if set {
			errs = append(errs, field.Forbidden(path, remedy))
		}
	}
	const hosts = "the host sets this field; remove it"
	forbid(path.Child("addresses"), len(v.Spec.Addresses) > 0, "a space cannot claim addresses of the host's network; remove the field, and the host assigns an address")
	forbid(path.Child("infrastructure"), v.Spec.Infrastructure != nil && !equality.Semantic.DeepEqual(*v.Spec.Infrastructure, gatewayv1.GatewayInfrastructure{}),
		"labels, annotations, and parameters would configure the host's controllers; remove the field")
	forbid(path.Child("backendTLS"), v.Spec.BackendTLS != nil, hosts)
	if l := v.Spec.AllowedListeners; l != nil && l.Namespaces != nil {
		forbid(path.Child("allowedListeners"), ptr.Deref(l.Namespaces.From, gatewayv1.NamespacesFromNone) != gatewayv1.NamespacesFromNone, "a gateway of a space cannot use ListenerSets; put the listeners into spec.listeners")
	}
	if many := AtMost(path.Child("listeners"), len(v.Spec.Listeners), bounds.GatewayListeners); len(many) > 0 {
		return append(errs, many...)
	}
	for i := range v.Spec.Listeners {
		errs = append(errs, checkListener(path.Child("listeners").Index(i), v.Namespace, &v.Spec.Listeners[i])...)
	}
	return errs
}

func checkListener(path *field.Path, namespace string, l *gatewayv1.Listener) (errs field.ErrorList) {
	errs = checkHostname(path.Child("hostname"), string(ptr.Deref(l.Hostname, "")))
	if port, ok := listenerPorts()[l.Protocol]; !ok || port != l.Port {
		errs = append(errs, field.Forbidden(path.Child("port"), "gateways of a space listen on port 80 for HTTP, and on port 443 for HTTPS and TLS; use one of these"))
	}
	if r := l.AllowedRoutes; r != nil {
		if n := r.Namespaces; n != nil && ptr.Deref(n.From, gatewayv1.NamespacesFromSame) != gatewayv1.NamespacesFromSame {
			errs = append(errs, field.Forbidden(path.Child("allowedRoutes", "namespaces", "from"), "routes attach to gateways in their own namespace; use Same"))
		}
		for i, kind := range r.Kinds {
			if ptr.Deref(kind.Group, gatewayv1.GroupName) != gatewayv1.GroupName || !slices.Contains(RouteKinds(), string(kind.Kind)) {
				errs = append(errs, field.Forbidden(path.Child("allowedRoutes", "kinds").Index(i), "gateways of a space serve HTTPRoutes, GRPCRoutes, and TLSRoutes; use one of these, or remove the entry"))
			}
		}
	}
	if l.TLS == nil {
		if l.Protocol == gatewayv1.TLSProtocolType {
			errs = append(errs, field.Required(path.Child("tls"), "set the mode Passthrough for protocol TLS"))
		}
		return errs
	}
	path = path.Child("tls")
	if mode := tlsMode(l); ptr.Deref(l.TLS.Mode, gatewayv1.TLSModeTerminate) != mode {
		errs = append(errs, field.Forbidden(path.Child("mode"), fmt.Sprintf("use %s for protocol %s", mode, l.Protocol)))
	}
	if len(l.TLS.Options) > 0 {
		errs = append(errs, field.Forbidden(path.Child("options"), "options would configure the host's controller; remove the field"))
	}
	if l.TLS.FrontendValidation != nil {
		errs = append(errs, field.Forbidden(path.Child("frontendValidation"), "gateways of a space do not verify client certificates; remove the field"))
	}
	for i := range l.TLS.CertificateRefs {
		if _, ok := ownSecret(namespace, &l.TLS.CertificateRefs[i]); !ok {
			errs = append(errs, field.Forbidden(path.Child("certificateRefs").Index(i), "the certificate must be a Secret in the namespace of the gateway"))
		}
	}
	return errs
}

// checkHostname rejects wildcards and the empty name, which stand for more than one host name.
func checkHostname(path *field.Path, name string) field.ErrorList {
	switch {
	case name == "":
		return field.ErrorList{field.Forbidden(path, "without a host name it would receive requests for other tenants; set the host name")}
	case strings.Contains(name, "*"):
		return field.ErrorList{field.Forbidden(path, "a wildcard would match host names of other tenants; set the full host name")}
	default:
		return nil
	}
}

// ownSecret returns the secret of a reference, if it is a secret in this namespace.
func ownSecret(namespace string, ref *gatewayv1.SecretObjectReference) (types.NamespacedName, bool) {
	ok := ptr.Deref(ref.Group, "") == "" && ptr.Deref(ref.Kind, "Secret") == "Secret" && isOwn(namespace, ref.Namespace)
	return types.NamespacedName{Namespace: namespace, Name: string(ref.Name)}, ok
}

func isOwn(namespace string, named *gatewayv1.Namespace) bool {
	return named == nil || *named == "" || string(*named) == namespace
}

// Gateway returns v's host object. v must have passed [CheckGateway]. On the host, all objects of a space are in one
// namespace, so that only the space's own routes can attach. [Space.HTTPRoute] prevents that routes of the space's
// other namespaces attach.
func (s Space) Gateway(v *gatewayv1.Gateway) *gatewayv1.Gateway {
	host := &gatewayv1.Gateway{ObjectMeta: s.ObjectMeta(v, LimitLabel), Spec: gatewayv1.GatewaySpec{GatewayClassName: v.Spec.GatewayClassName}}
	for i := range v.Spec.Listeners {
		l := v.Spec.Listeners[i].DeepCopy()
		out := gatewayv1.Listener{
			Name: l.Name, Hostname: l.Hostname, Port: l.Port, Protocol: l.Protocol,
			AllowedRoutes: &gatewayv1.AllowedRoutes{
				Namespaces: &gatewayv1.RouteNamespaces{From: ptr.To(gatewayv1.NamespacesFromSame)},
			},
		}
		if l.AllowedRoutes != nil {
			for _, kind := range l.AllowedRoutes.Kinds {
				out.AllowedRoutes.Kinds = append(out.AllowedRoutes.Kinds, gatewayv1.RouteGroupKind{Group: ptr.To(gatewayv1.Group(gatewayv1.GroupName)), Kind: kind.Kind})
			}
		}
		if l.TLS != nil {
			out.TLS = &gatewayv1.GatewayTLSConfig{Mode: ptr.To(tlsMode(l))}
			for j := range l.TLS.CertificateRefs {
				if ref, ok := ownSecret(v.Namespace, &l.TLS.CertificateRefs[j]); ok {
					out.TLS.CertificateRefs = append(out.TLS.CertificateRefs, gatewayv1.SecretObjectReference{
						Group: ptr.To(gatewayv1.Group("")), Kind: ptr.To(gatewayv1.Kind("Secret")),
						Name: gatewayv1.ObjectName(s.HostName(ref.Namespace, ref.Name, LimitSubdomain)),
					})
				}
			}
		}
		host.Spec.Listeners = append(host.Spec.Listeners, out)
	}
	return host
}

// PushGateway copies the tenant's fields of a gateway to have. It reports whether anything differed.
func PushGateway(want, have *gatewayv1.Gateway) bool {
	changed := PushMeta(want, have)
	want = want.DeepCopy()
	// Newer definitions set it by default.
	if l := have.Spec.AllowedListeners; l != nil && l.Namespaces != nil && ptr.Deref(l.Namespaces.From, "") == gatewayv1.NamespacesFromNone {
		want.Spec.AllowedListeners = l
	}
	if !equality.Semantic.DeepEqual(want.Spec, have.Spec) {
		have.Spec, changed = want.Spec, true
	}
	return changed
}

// PullGatewayStatus returns what v's tenant sees of the host's status: the addresses, except those of nodes, and the
// conditions, without the controller's messages, which may name objects of the host.
func (s Space) PullGatewayStatus(v, host *gatewayv1.Gateway, nodes AddressSet) gatewayv1.GatewayStatus {
	h := host.Status.DeepCopy()
	out := gatewayv1.GatewayStatus{Conditions: conditions(v, host, h.Conditions)}
	for _, a := range h.Addresses {
		if kind := ptr.Deref(a.Type, gatewayv1.IPAddressType); kind == gatewayv1.IPAddressType || kind == gatewayv1.HostnameAddressType {
			out.Addresses = append(out.Addresses, a)
		}
	}
	out.Addresses = withoutNodes(s, out.Addresses, nodes, func(a gatewayv1.GatewayStatusAddress) []string { return []string{a.Value} })
	for _, l := range h.Listeners {
		l.Conditions = conditions(v, host, l.Conditions)
		if l.SupportedKinds == nil {
			l.SupportedKinds = []gatewayv1.RouteGroupKind{} // the field is required
		}
		out.Listeners = append(out.Listeners, l)
	}
	return out
}

// conditions returns the conditions of Gateway API as v's tenant sees them. Their observed generation is that of the
// host's object. It becomes v's generation if it is the latest.
func conditions(v, host metav1.Object, all []metav1.Condition) []metav1.Condition {
	known := []string{"Accepted", "Programmed", "ResolvedRefs", "Ready", "Conflicted", "PartiallyInvalid", "OverlappingTLSConfig", "SupportedVersion"}
	out := []metav1.Condition{}
	for _, c := range all {
		if !slices.Contains(known, c.Type) {
			continue
		}
		c.Message = ""
		switch {
		case c.ObservedGeneration == host.GetGeneration():
			c.ObservedGeneration = v.GetGeneration()
		case c.ObservedGeneration > 0:
			c.ObservedGeneration = max(v.GetGeneration()-1, 0)
		}
		out = append(out, c)
	}
	return out
}

// GatewayHosts returns the host names that a gateway claims, sorted and unique. "" means all.
func GatewayHosts(v *gatewayv1.Gateway) (hosts []string) {
	for i := range v.Spec.Listeners {
		hosts = append(hosts, string(ptr.Deref(v.Spec.Listeners[i].Hostname, "")))
	}
	slices.Sort(hosts)
	return slices.Compact(hosts)
}

// GatewaySecrets returns the secrets that a gateway refers to.
func GatewaySecrets(v *gatewayv1.Gateway) (refs []types.NamespacedName) {
	for i := range v.Spec.Listeners {
		if v.Spec.Listeners[i].TLS == nil {
			continue
		}
		for j := range v.Spec.Listeners[i].TLS.CertificateRefs {
			if ref, ok := ownSecret(v.Namespace, &v.Spec.Listeners[i].TLS.CertificateRefs[j]); ok {
				refs = append(refs, ref)
			}
		}
	}
	return refs
}

// GatewayClass returns the space's copy of the host's class. Controller and parameters are replaced.
func GatewayClass(host *gatewayv1.GatewayClass) *gatewayv1.GatewayClass {
	return &gatewayv1.GatewayClass{ObjectMeta: classMeta(host, ""), Spec: gatewayv1.GatewayClassSpec{ControllerName: GatewayController}}
}

// PullGatewayClass is [PullIngressClass] for gateway classes.
func PullGatewayClass(want, have *gatewayv1.GatewayClass) (changed, recreate bool) {
	changed = pullClassMeta(want, have, "")
	if have.Spec.ParametersRef != nil || have.Spec.Description != nil {
		have.Spec.ParametersRef, have.Spec.Description, changed = nil, nil, true
	}
	return changed, want.Spec.ControllerName != have.Spec.ControllerName
}

// PullGatewayClassStatus copies to have whether the host's class is accepted, and reports whether that differed.
func PullGatewayClassStatus(host, have *gatewayv1.GatewayClass) bool {
	is := gatewayv1.GatewayClassStatus{Conditions: conditions(have, host, host.Status.Conditions), SupportedFeatures: slices.Clone(host.Status.SupportedFeatures)}
	if equality.Semantic.DeepEqual(is, have.Status) {
		return false
	}
	have.Status = is
	return true
}
