// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package translate

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/berth-dev/berth/bounds"
)

// CheckService returns an error for each field of a service that the host can't allow a tenant.
func CheckService(spec *corev1.ServiceSpec) field.ErrorList {
	path := field.NewPath("spec")
	errs := AtMost(path.Child("ports"), len(spec.Ports), bounds.ServicePorts)
	if len(spec.ExternalIPs) > 0 {
		errs = append(errs, field.Forbidden(path.Child("externalIPs"),
			"a space cannot claim addresses of the host's network (CVE-2020-8554); use type LoadBalancer"))
	}
	return errs
}

// ServiceWarnings returns warnings about what the host does not support for a service.
func ServiceWarnings(spec *corev1.ServiceSpec) (warnings []string) {
	if hasOwnBalancer(spec) {
		warnings = append(warnings, "spec.loadBalancerClass: the host does not implement load balancer classes for spaces; run a controller for the class in the space, or remove the field to use the host's load balancer")
	}
	if Exposed(spec) && len(spec.Selector) == 0 {
		warnings = append(warnings, "spec.selector: without a selector, the service is not reachable from outside, because endpoints that you write could lead into the host's network; set a selector")
	}
	return warnings
}

// Exposed reports whether a service, in a space or on the host, can be reached from outside the cluster.
func Exposed(spec *corev1.ServiceSpec) bool {
	return spec.Type == corev1.ServiceTypeNodePort || spec.Type == corev1.ServiceTypeLoadBalancer
}

// hasOwnBalancer reports whether a load balancer controller of the tenant serves a service. The host only provides the
// node ports.
func hasOwnBalancer(spec *corev1.ServiceSpec) bool {
	return spec.Type == corev1.ServiceTypeLoadBalancer && spec.LoadBalancerClass != nil
}

// Service returns v's host object. Its selector matches only the host pods of v's namespace, so the host's own
// controller maintains the endpoints. A service without a selector gets the endpoint slices that the tenant wrote. If
// it is exposed, it selects nothing instead, because endpoints that a tenant writes could route into the host's network
// (CVE-2021-25740).
//
// The host allocates cluster IPs and node ports. If v already has them, its host object requests the same values,
// because both sides must show the same.
func (s Space) Service(v *corev1.Service) *corev1.Service {
	p := v.Spec.DeepCopy()
	host := &corev1.Service{
		ObjectMeta: s.ObjectMeta(v, LimitLabel),
		Spec: corev1.ServiceSpec{
			Type:                     p.Type,
			Ports:                    p.Ports,
			ClusterIP:                p.ClusterIP,
			ClusterIPs:               p.ClusterIPs,
			IPFamilies:               p.IPFamilies,
			IPFamilyPolicy:           p.IPFamilyPolicy,
			ExternalName:             p.ExternalName,
			SessionAffinity:          p.SessionAffinity,
			SessionAffinityConfig:    p.SessionAffinityConfig,
			PublishNotReadyAddresses: p.PublishNotReadyAddresses,
			InternalTrafficPolicy:    p.InternalTrafficPolicy,
			ExternalTrafficPolicy:    p.ExternalTrafficPolicy,
			LoadBalancerSourceRanges: p.LoadBalancerSourceRanges,
			TrafficDistribution:      p.TrafficDistribution,
		},
	}
	if p.AllocateLoadBalancerNodePorts != nil {
		host.Spec.AllocateLoadBalancerNodePorts = p.AllocateLoadBalancerNodePorts
	}
	if len(p.Selector) > 0 && p.Type != corev1.ServiceTypeExternalName {
		host.Spec.Selector = s.mapSelector(p.Selector)
		host.Spec.Selector[LabelSpace] = s.Name
		host.Spec.Selector[LabelNamespace] = v.Namespace
	}
	if Exposed(p) && len(p.Selector) == 0 {
		host.Spec.Selector = map[string]string{LabelSpace: s.Name, LabelNamespace: v.Namespace, labelNothing: "true"}
	}
	if hasOwnBalancer(p) {
		leaveBalancer(&host.Spec)
	}
	return host
}

// Unexposed returns a copy of an exposed host service with its selector, but not exposed.
func Unexposed(host *corev1.Service) *corev1.Service {
	out := host.DeepCopy()
	spec := &out.Spec
	spec.Type = corev1.ServiceTypeClusterIP
	spec.ExternalTrafficPolicy, spec.HealthCheckNodePort = "", 0
	spec.AllocateLoadBalancerNodePorts, spec.LoadBalancerSourceRanges = nil, nil
	spec.LoadBalancerClass, spec.LoadBalancerIP = nil, ""
	for i := range spec.Ports {
		spec.Ports[i].NodePort = 0
	}
	return out
}

// PushServiceSelector copies only the selector for v's host service to have. It reports whether it differed. It neither
// adds nor removes a selector, because the selector decides who maintains the service's endpoints.
func (s Space) PushServiceSelector(v, have *corev1.Service) bool {
	want := s.Service(v).Spec.Selector
	if len(want) == 0 || len(have.Spec.Selector) == 0 || maps.Equal(want, have.Spec.Selector) {
		return false
	}
	have.Spec.Selector = want
	return true
}

// labelNothing is a label that no pod has.
const labelNothing = Domain + "/nothing"

// leaveBalancer changes a service to the type that a tenant's load balancer needs as its target.
func leaveBalancer(spec *corev1.ServiceSpec) {
	spec.Type = corev1.ServiceTypeNodePort
	if allocate := spec.AllocateLoadBalancerNodePorts; allocate != nil && !*allocate {
		spec.Type, spec.ExternalTrafficPolicy = corev1.ServiceTypeClusterIP, ""
		for i := range spec.Ports {
			spec.Ports[i].NodePort = 0
		}
	}
	spec.AllocateLoadBalancerNodePorts, spec.LoadBalancerSourceRanges = nil, nil
}

// PushService copies the tenant's fields of a service to have. It reports whether anything differed. The host's
// allocations stay, including node ports, which are matched by port number and protocol.
func PushService(want, have *corev1.Service) bool {
	changed := PushMeta(want, have)
	spec := want.Spec.DeepCopy()
	if spec.Type != corev1.ServiceTypeExternalName && have.Spec.ClusterIP != "" && have.Spec.Type != corev1.ServiceTypeExternalName {
		spec.ClusterIP, spec.ClusterIPs = have.Spec.ClusterIP, have.Spec.ClusterIPs
	}
	if len(spec.IPFamilies) == 0 {
		spec.IPFamilies, spec.IPFamilyPolicy = have.Spec.IPFamilies, have.Spec.IPFamilyPolicy
	}
	if Exposed(spec) {
		keepNodePorts(spec.Ports, have.Spec.Ports)
	}
	spec.HealthCheckNodePort = have.Spec.HealthCheckNodePort
	spec.LoadBalancerClass = have.Spec.LoadBalancerClass
	spec.LoadBalancerIP = have.Spec.LoadBalancerIP
	if !equality.Semantic.DeepEqual(*spec, have.Spec) {
		have.Spec, changed = *spec, true
	}
	return changed
}

// keepNodePorts sets the allocated node ports on the ports that don't ask for one.
func keepNodePorts(want, have []corev1.ServicePort) {
	type key struct {
		port     int32
		protocol corev1.Protocol
	}
	ports := make(map[key]int32, len(have))
	for _, port := range have {
		ports[key{port.Port, port.Protocol}] = port.NodePort
	}
	for i := range want {
		if want[i].NodePort == 0 {
			want[i].NodePort = ports[key{want[i].Port, want[i].Protocol}]
		}
	}
}

// PullServiceStatus returns what the tenant sees of the host service's status: the load balancer's addresses, except
// those of nodes. The status of a tenant's own load balancer is written by the tenant.
func (s Space) PullServiceStatus(v, host *corev1.Service, nodes AddressSet) corev1.ServiceStatus {
	if hasOwnBalancer(&v.Spec) {
		return v.Status
	}
	out := corev1.ServiceStatus{LoadBalancer: *host.Status.LoadBalancer.DeepCopy()}
	out.LoadBalancer.Ingress = withoutNodes(s, out.LoadBalancer.Ingress, nodes, func(i corev1.LoadBalancerIngress) []string { return []string{i.IP, i.Hostname} })
	return out
}

// HasOwnEndpoints reports whether the tenant writes the service's endpoints, which are then synced to the host.
// Otherwise, the host's controller creates them. The endpoints may be anybody's; see [LeadsOut]. Only the space's own
// pods reach them by the service, and their network policies apply. Berth writes the endpoints of the space's API.
func HasOwnEndpoints(v *corev1.Service) bool {
	return len(v.Spec.Selector) == 0 && v.Spec.Type == corev1.ServiceTypeClusterIP &&
		(v.Namespace != metav1.NamespaceDefault || v.Name != "kubernetes")
}

// TakesEndpoints reports whether a host service may have endpoints that a tenant wrote.
func TakesEndpoints(host *corev1.Service) bool {
	return host.Spec.Type == corev1.ServiceTypeClusterIP && len(host.Spec.Selector) == 0
}

// LeadsOut reports whether a service may route to something other than the space's pods: by an external name, by
// endpoints that the tenant writes, or to the space's API. Network policies keep the space's pods from reaching these
// targets. They don't apply to a controller that forwards requests to the space, so such a controller must not use the
// service.
func LeadsOut(v *corev1.Service) bool {
	return v.Spec.Type == corev1.ServiceTypeExternalName || len(v.Spec.Selector) == 0
}
