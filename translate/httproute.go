// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package translate

import (
	"fmt"
	"regexp"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/berth-dev/berth/bounds"
)

// plainValue matches values that no controller interprets. Some controllers write values into a configuration file, and
// others expand what is between percent signs.
var plainValue = regexp.MustCompile(`^[A-Za-z0-9 ._~:@&+,=/!*()-]*$`)

// CheckHTTPRoute returns an error for each field of a route that the host can't allow a tenant.
func CheckHTTPRoute(v *gatewayv1.HTTPRoute) (errs field.ErrorList) {
	path := field.NewPath("spec")
	backends := 0
	for i := range v.Spec.Rules {
		backends += len(v.Spec.Rules[i].BackendRefs)
	}
	errs = append(errs, AtMost(path.Child("hostnames"), len(v.Spec.Hostnames), bounds.RouteHosts)...)
	errs = append(errs, AtMost(path.Child("rules"), len(v.Spec.Rules), bounds.RouteRules)...)
	errs = append(errs, AtMost(path.Child("rules"), backends, bounds.RouteBackends)...)
	if len(errs) > 0 {
		return errs
	}
	for i, name := range v.Spec.Hostnames {
		errs = append(errs, checkHostname(path.Child("hostnames").Index(i), string(name))...)
	}
	for i := range v.Spec.Rules {
		rule, path := &v.Spec.Rules[i], path.Child("rules").Index(i)
		if rule.SessionPersistence != nil {
			errs = append(errs, field.Forbidden(path.Child("sessionPersistence"), "spaces cannot use session persistence; remove the field"))
		}
		for j := range rule.Matches {
			errs = append(errs, checkMatch(path.Child("matches").Index(j), &rule.Matches[j])...)
		}
		errs = append(errs, checkFilters(path.Child("filters"), v.Namespace, rule.Filters)...)
		for j := range rule.BackendRefs {
			path := path.Child("backendRefs").Index(j)
			errs = append(errs, checkBackend(path, v.Namespace, &rule.BackendRefs[j].BackendObjectReference)...)
			errs = append(errs, checkFilters(path.Child("filters"), v.Namespace, rule.BackendRefs[j].Filters)...)
		}
	}
	return errs
}

const writtenOut = "all spaces share the controller that reads this value; use letters, digits, and common punctuation only"

func checkMatch(path *field.Path, m *gatewayv1.HTTPRouteMatch) (errs field.ErrorList) {
	const exact = "all spaces share the controller that would evaluate the regular expression; use an exact match, or the prefix of a path"
	if p := m.Path; p != nil {
		if ptr.Deref(p.Type, gatewayv1.PathMatchPathPrefix) == gatewayv1.PathMatchRegularExpression {
			errs = append(errs, field.Forbidden(path.Child("path", "type"), exact))
		}
		errs = append(errs, checkPath(path.Child("path", "value"), p.Value)...)
	}
	for i, h := range m.Headers {
		path := path.Child("headers").Index(i)
		if ptr.Deref(h.Type, gatewayv1.HeaderMatchExact) != gatewayv1.HeaderMatchExact {
			errs = append(errs, field.Forbidden(path.Child("type"), exact))
		}
		errs = append(errs, checkValue(path.Child("value"), h.Value)...)
	}
	for i, q := range m.QueryParams {
		path := path.Child("queryParams").Index(i)
		if ptr.Deref(q.Type, gatewayv1.QueryParamMatchExact) != gatewayv1.QueryParamMatchExact {
			errs = append(errs, field.Forbidden(path.Child("type"), exact))
		}
		errs = append(errs, checkValue(path.Child("value"), q.Value)...)
	}
	return errs
}

func checkPath(path *field.Path, value *string) field.ErrorList {
	if value == nil || *value == "" || plainPath.MatchString(*value) {
		return nil
	}
	return field.ErrorList{field.Forbidden(path, writtenOut)}
}

func checkValue(path *field.Path, value string) field.ErrorList {
	if plainValue.MatchString(value) {
		return nil
	}
	return field.ErrorList{field.Forbidden(path, writtenOut)}
}

// checkFilters accepts only filters that have the same effect with every controller.
func checkFilters(path *field.Path, namespace string, filters []gatewayv1.HTTPRouteFilter) (errs field.ErrorList) {
	for i := range filters {
		f, path := &filters[i], path.Index(i)
		known := []gatewayv1.HTTPRouteFilterType{
			gatewayv1.HTTPRouteFilterRequestHeaderModifier, gatewayv1.HTTPRouteFilterResponseHeaderModifier, gatewayv1.HTTPRouteFilterRequestRedirect,
			gatewayv1.HTTPRouteFilterURLRewrite, gatewayv1.HTTPRouteFilterRequestMirror,
		}
		if !slices.Contains(known, f.Type) || f.ExtensionRef != nil || f.CORS != nil {
			errs = append(errs, field.Forbidden(path.Child("type"), fmt.Sprintf("routes of a space can use the filters %v only", known)))
		}
		for name, m := range map[string]*gatewayv1.HTTPHeaderFilter{"requestHeaderModifier": f.RequestHeaderModifier, "responseHeaderModifier": f.ResponseHeaderModifier} {
			if m == nil {
				continue
			}
			for _, h := range slices.Concat(m.Set, m.Add) {
				errs = append(errs, checkValue(path.Child(name).Key(string(h.Name)), h.Value)...)
			}
		}
		if r := f.RequestRedirect; r != nil {
			errs = append(errs, checkModifier(path.Child("requestRedirect", "path"), r.Path)...)
		}
		if r := f.URLRewrite; r != nil {
			errs = append(errs, checkModifier(path.Child("urlRewrite", "path"), r.Path)...)
		}
		if m := f.RequestMirror; m != nil {
			errs = append(errs, checkBackend(path.Child("requestMirror", "backendRef"), namespace, &m.BackendRef)...)
		}
	}
	return errs
}

func checkModifier(path *field.Path, m *gatewayv1.HTTPPathModifier) field.ErrorList {
	if m == nil {
		return nil
	}
	return append(checkPath(path.Child("replaceFullPath"), m.ReplaceFullPath), checkPath(path.Child("replacePrefixMatch"), m.ReplacePrefixMatch)...)
}

func checkBackend(path *field.Path, namespace string, ref *gatewayv1.BackendObjectReference) field.ErrorList {
	if isService(namespace, ref) {
		return nil
	}
	return field.ErrorList{field.Forbidden(path, "a route can refer to services in its own namespace only; use such a service")}
}

func isService(namespace string, ref *gatewayv1.BackendObjectReference) bool {
	return ptr.Deref(ref.Group, "") == "" && ptr.Deref(ref.Kind, "Service") == "Service" && isOwn(namespace, ref.Namespace)
}

// ParentGateway returns the gateway that a route's parent reference names; ok is false if the parent is not a gateway.
func ParentGateway(v *gatewayv1.HTTPRoute, ref *gatewayv1.ParentReference) (at types.NamespacedName, ok bool) {
	ok = ptr.Deref(ref.Group, gatewayv1.GroupName) == gatewayv1.GroupName && ptr.Deref(ref.Kind, "Gateway") == "Gateway"
	return types.NamespacedName{Namespace: string(ptr.Deref(ref.Namespace, gatewayv1.Namespace(v.Namespace))), Name: string(ref.Name)}, ok
}

// HTTPRoute returns v's host object, with those parents that the host serves. v must have passed [CheckHTTPRoute].
func (s Space) HTTPRoute(v *gatewayv1.HTTPRoute, served func(types.NamespacedName) bool) *gatewayv1.HTTPRoute {
	p := v.Spec.DeepCopy()
	host := &gatewayv1.HTTPRoute{ObjectMeta: s.ObjectMeta(v, LimitSubdomain), Spec: gatewayv1.HTTPRouteSpec{Hostnames: p.Hostnames, Rules: p.Rules}}
	for i := range p.ParentRefs {
		if at, ok := ParentGateway(v, &p.ParentRefs[i]); ok && at.Namespace == v.Namespace && served(at) {
			host.Spec.ParentRefs = append(host.Spec.ParentRefs, s.hostParent(v, p.ParentRefs[i]))
		}
	}
	rename := func(ref *gatewayv1.BackendObjectReference) {
		ref.Group, ref.Kind, ref.Namespace = ptr.To(gatewayv1.Group("")), ptr.To(gatewayv1.Kind("Service")), nil
		ref.Name = gatewayv1.ObjectName(s.HostName(v.Namespace, string(ref.Name), LimitLabel))
	}
	for i := range host.Spec.Rules {
		eachBackend(&host.Spec.Rules[i], rename)
	}
	return host
}

// hostParent returns the host's form of a route's reference to a gateway.
func (s Space) hostParent(v *gatewayv1.HTTPRoute, ref gatewayv1.ParentReference) gatewayv1.ParentReference {
	return gatewayv1.ParentReference{
		Group: ptr.To(gatewayv1.Group(gatewayv1.GroupName)), Kind: ptr.To(gatewayv1.Kind("Gateway")),
		Name: gatewayv1.ObjectName(s.HostName(v.Namespace, string(ref.Name), LimitLabel)), SectionName: ref.SectionName, Port: ref.Port,
	}
}

// eachBackend calls visit for each backend of a rule, including mirrors.
func eachBackend(rule *gatewayv1.HTTPRouteRule, visit func(*gatewayv1.BackendObjectReference)) {
	mirrors := func(filters []gatewayv1.HTTPRouteFilter) {
		for i := range filters {
			if m := filters[i].RequestMirror; m != nil {
				visit(&m.BackendRef)
			}
		}
	}
	mirrors(rule.Filters)
	for i := range rule.BackendRefs {
		visit(&rule.BackendRefs[i].BackendObjectReference)
		mirrors(rule.BackendRefs[i].Filters)
	}
}

// PushHTTPRoute copies the tenant's fields of a route to have. It reports whether anything differed.
func PushHTTPRoute(want, have *gatewayv1.HTTPRoute) bool {
	changed := PushMeta(want, have)
	if !equality.Semantic.DeepEqual(want.Spec, have.Spec) {
		have.Spec, changed = *want.Spec.DeepCopy(), true
	}
	return changed
}

// PullHTTPRouteStatus returns the status that v's tenant sees: the host's, and that of controllers in the space.
func (s Space) PullHTTPRouteStatus(v, host *gatewayv1.HTTPRoute) gatewayv1.HTTPRouteStatus {
	out := gatewayv1.HTTPRouteStatus{RouteStatus: gatewayv1.RouteStatus{Parents: []gatewayv1.RouteParentStatus{}}}
	for _, p := range v.Status.Parents {
		if p.ControllerName != GatewayController {
			out.Parents = append(out.Parents, *p.DeepCopy())
		}
	}
	for _, ref := range v.Spec.ParentRefs {
		at, ok := ParentGateway(v, &ref)
		if !ok || at.Namespace != v.Namespace {
			continue
		}
		there := s.hostParent(v, ref)
		i := slices.IndexFunc(host.Status.Parents, func(p gatewayv1.RouteParentStatus) bool {
			return isOwn(host.Namespace, p.ParentRef.Namespace) && p.ParentRef.Name == there.Name &&
				ptr.Equal(p.ParentRef.SectionName, there.SectionName) && ptr.Equal(p.ParentRef.Port, there.Port)
		})
		if i >= 0 {
			out.Parents = append(out.Parents, gatewayv1.RouteParentStatus{
				ParentRef: *ref.DeepCopy(), ControllerName: GatewayController, Conditions: conditions(v, host, host.Status.Parents[i].Conditions),
			})
		}
	}
	return out
}

// HTTPRouteHosts returns the host names that a route claims, sorted and unique.
func HTTPRouteHosts(v *gatewayv1.HTTPRoute) (hosts []string) {
	for _, name := range v.Spec.Hostnames {
		hosts = append(hosts, string(name))
	}
	slices.Sort(hosts)
	return slices.Compact(hosts)
}

// HTTPRouteServices returns the names of the services that a route routes to, sorted and unique.
func HTTPRouteServices(v *gatewayv1.HTTPRoute) (names []string) {
	for i := range v.Spec.Rules {
		eachBackend(&v.Spec.Rules[i], func(ref *gatewayv1.BackendObjectReference) {
			if isService(v.Namespace, ref) {
				names = append(names, string(ref.Name))
			}
		})
	}
	slices.Sort(names)
	return slices.Compact(names)
}
