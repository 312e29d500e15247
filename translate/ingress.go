// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package translate

import (
	"regexp"
	"slices"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/berth-dev/berth/bounds"
)

// plainPath matches paths that controllers can write into a configuration file without interpreting any part of them
// (CVE-2021-25745, CVE-2021-25748).
var plainPath = regexp.MustCompile(`^/[A-Za-z0-9._~%:@&+,=/!*()-]*$`)

// CheckIngress returns an error for each field of an ingress that the host can't allow a tenant: all spaces share one
// controller.
func CheckIngress(spec *networkingv1.IngressSpec) field.ErrorList {
	errs := CheckIngressSize(spec)
	if len(errs) > 0 {
		return errs
	}
	path := field.NewPath("spec")
	if spec.DefaultBackend != nil {
		errs = append(errs, field.Forbidden(path.Child("defaultBackend"), "a default backend would receive requests for other tenants; use a rule with a host"))
	}
	checkHost := func(path *field.Path, host string) {
		switch {
		case host == "":
			errs = append(errs, field.Forbidden(path, "a rule without a host would receive requests for other tenants; set the host"))
		case strings.Contains(host, "*"):
			errs = append(errs, field.Forbidden(path, "a wildcard would match host names of other tenants; set the full host name"))
		}
	}
	for i, rule := range spec.Rules {
		path := path.Child("rules").Index(i)
		checkHost(path.Child("host"), rule.Host)
		if rule.HTTP == nil {
			continue
		}
		for j, p := range rule.HTTP.Paths {
			path := path.Child("http", "paths").Index(j)
			if p.Path != "" && !plainPath.MatchString(p.Path) {
				errs = append(errs, field.Forbidden(path.Child("path"), "all spaces share the controller that reads this path; use letters, digits, and -._~%:@&+,=/!*() only"))
			}
			if p.Backend.Resource != nil {
				errs = append(errs, field.Forbidden(path.Child("backend", "resource"), "an ingress can refer to services of the space only; set a service"))
			}
		}
	}
	for i, tls := range spec.TLS {
		path := path.Child("tls").Index(i).Child("hosts")
		if len(tls.Hosts) == 0 {
			checkHost(path, "")
		}
		for j, host := range tls.Hosts {
			checkHost(path.Index(j), host)
		}
	}
	return errs
}

// CheckIngressSize returns an error for each limit that an ingress of any class exceeds.
func CheckIngressSize(spec *networkingv1.IngressSpec) field.ErrorList {
	hosts, paths := len(spec.Rules), 0
	for i := range spec.Rules {
		if http := spec.Rules[i].HTTP; http != nil {
			paths += len(http.Paths)
		}
	}
	for i := range spec.TLS {
		hosts += max(len(spec.TLS[i].Hosts), 1)
	}
	return append(AtMost(field.NewPath("spec"), hosts, bounds.IngressHosts),
		AtMost(field.NewPath("spec", "rules"), paths, bounds.IngressPaths)...)
}

// Ingress returns v's host object. v must have passed [CheckIngress]; what that rejects is left out. Annotations
// configure the controller that all spaces share, so only those with allowed keys are copied.
func (s Space) Ingress(v *networkingv1.Ingress, allowed []string) *networkingv1.Ingress {
	p := v.Spec.DeepCopy()
	host := &networkingv1.Ingress{
		ObjectMeta: s.ObjectMeta(v, LimitSubdomain),
		Spec:       networkingv1.IngressSpec{IngressClassName: p.IngressClassName},
	}
	for _, key := range allowed {
		if value, ok := v.Annotations[key]; ok && !Owned(key) {
			host.Annotations[key] = value
		}
	}
	for _, rule := range p.Rules {
		if !namesHost(rule.Host) {
			continue
		}
		out := networkingv1.IngressRule{Host: rule.Host}
		if rule.HTTP != nil {
			out.HTTP = &networkingv1.HTTPIngressRuleValue{}
			for _, path := range rule.HTTP.Paths {
				service := path.Backend.Service
				if service == nil || path.Path != "" && !plainPath.MatchString(path.Path) {
					continue
				}
				out.HTTP.Paths = append(out.HTTP.Paths, networkingv1.HTTPIngressPath{
					Path: path.Path, PathType: path.PathType,
					Backend: networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{
						Name: s.HostName(v.Namespace, service.Name, LimitLabel), Port: service.Port,
					}},
				})
			}
			if len(out.HTTP.Paths) == 0 {
				continue
			}
		}
		host.Spec.Rules = append(host.Spec.Rules, out)
	}
	for _, tls := range p.TLS {
		hosts := slices.DeleteFunc(tls.Hosts, func(h string) bool { return !namesHost(h) })
		if len(hosts) == 0 {
			continue
		}
		out := networkingv1.IngressTLS{Hosts: hosts}
		if tls.SecretName != "" {
			out.SecretName = s.HostName(v.Namespace, tls.SecretName, LimitSubdomain)
		}
		host.Spec.TLS = append(host.Spec.TLS, out)
	}
	return host
}

func namesHost(host string) bool { return host != "" && !strings.Contains(host, "*") }

// PushIngress copies the tenant's fields of an ingress to have. It removes allowed annotations that v no longer has. It
// reports whether anything differed.
func PushIngress(want, have *networkingv1.Ingress, allowed []string) bool {
	changed := false
	for _, key := range allowed {
		_, wanted := want.Annotations[key]
		if _, there := have.Annotations[key]; there && !wanted {
			delete(have.Annotations, key)
			changed = true
		}
	}
	changed = PushMeta(want, have) || changed
	if !equality.Semantic.DeepEqual(want.Spec, have.Spec) {
		have.Spec, changed = *want.Spec.DeepCopy(), true
	}
	return changed
}

// PullIngressStatus returns what the tenant sees of the host ingress's status: its addresses, except those of nodes.
func (s Space) PullIngressStatus(host *networkingv1.Ingress, nodes AddressSet) networkingv1.IngressStatus {
	out := *host.Status.DeepCopy()
	out.LoadBalancer.Ingress = withoutNodes(s, out.LoadBalancer.Ingress, nodes, func(i networkingv1.IngressLoadBalancerIngress) []string { return []string{i.IP, i.Hostname} })
	return out
}

// IngressHosts returns the host names that an ingress claims, sorted and unique. "" means all.
func IngressHosts(v *networkingv1.Ingress) []string {
	var hosts []string
	for _, rule := range v.Spec.Rules {
		hosts = append(hosts, rule.Host)
	}
	for _, tls := range v.Spec.TLS {
		hosts = append(hosts, tls.Hosts...)
	}
	slices.Sort(hosts)
	return slices.Compact(hosts)
}

// IngressServices returns the names of the services that an ingress routes to, sorted and unique.
func IngressServices(v *networkingv1.Ingress) (names []string) {
	for i := range v.Spec.Rules {
		if v.Spec.Rules[i].HTTP == nil {
			continue
		}
		for _, path := range v.Spec.Rules[i].HTTP.Paths {
			if path.Backend.Service != nil {
				names = append(names, path.Backend.Service.Name)
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// IngressSecrets returns the secrets that an ingress refers to.
func IngressSecrets(v *networkingv1.Ingress) (refs []types.NamespacedName) {
	for _, tls := range v.Spec.TLS {
		if tls.SecretName != "" {
			refs = append(refs, types.NamespacedName{Namespace: v.Namespace, Name: tls.SecretName})
		}
	}
	return refs
}
