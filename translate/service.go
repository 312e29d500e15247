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

// CheckService lists what a tenant may not ask of the host with a service.
func CheckService(spec *corev1.ServiceSpec) field.ErrorList {
	path := field.NewPath("spec")
	errs := AtMost(path.Child("ports"), len(spec.Ports), bounds.ServicePorts)
	if len(spec.ExternalIPs) > 0 {
		errs = append(errs, field.Forbidden(path.Child("externalIPs"),
			"a space cannot claim addresses of the host's network (CVE-2020-8554); use type LoadBalancer"))
	}
	return errs
}

// ServiceWarnings tell a tenant what the host does not do for a service.
func ServiceWarnings(spec *corev1.ServiceSpec) (warnings []string) {
	if hasOwnBalancer(spec) {
		warnings = append(warnings, "spec.loadBalancerClass: the host does not implement load balancer classes for spaces; run a controller for the class in the space, or remove the field to use the host's load balancer")
	}
	if Exposed(spec) && len(spec.Selector) == 0 {
		warnings = append(warnings, "spec.selector: without a selector, the service is not reachable from outside, because endpoints that you write could lead into the host's network; set a selector")
	}
	return warnings
}

// Exposed reports whether a service, in a space or on the host, is reached from
// outside the cluster.
func Exposed(spec *corev1.ServiceSpec) bool {
	return spec.Type == corev1.ServiceTypeNodePort || spec.Type == corev1.ServiceTypeLoadBalancer
}

// hasOwnBalancer reports whether a service is for a load balancer of the tenant's
// own. The host has no part in that but the node ports.
func hasOwnBalancer(spec *corev1.ServiceSpec) bool {
	return spec.Type == corev1.ServiceTypeLoadBalancer && spec.LoadBalancerClass != nil
}

// Service is v's host object. Its selector finds the host pods of v's namespace
// only, so that the host's own controller keeps the endpoints; a service
// without one gets the endpoint slices that the tenant wrote. One that is reached
// from outside then selects nothing: endpoints that a tenant writes could lead into
// the host's network (CVE-2021-25740).
//
// Cluster IPs and node ports are the host's to give: they are asked for by
// value where v has them, for both sides must show the same.
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

// Unexposed is a copy of an exposed host service that has its selector, and is
// not exposed.
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

// PushServiceSelector copies onto the host service have the selector that v's
// should have, and nothing else. It reports whether it differed. A service that
// has none keeps none, and one that has one keeps one: the selector decides whose
// endpoints the service has.
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

// leaveBalancer makes a service what its load balancer leads to.
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

// PushService copies onto have what the tenant owns of a service. The host's
// allocations stay; so do node ports, which ports keep by their number and protocol.
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

// keepNodePorts gives the ports that ask for no node port those that they have.
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

// PullServiceStatus is what the tenant sees of the host service's status: its
// load balancer's addresses, less those of nodes. Those of a load balancer of the
// tenant's own are the tenant's to write.
func (s Space) PullServiceStatus(v, host *corev1.Service, nodes AddressSet) corev1.ServiceStatus {
	if hasOwnBalancer(&v.Spec) {
		return v.Status
	}
	out := corev1.ServiceStatus{LoadBalancer: *host.Status.LoadBalancer.DeepCopy()}
	out.LoadBalancer.Ingress = withoutNodes(s, out.LoadBalancer.Ingress, nodes, func(i corev1.LoadBalancerIngress) []string { return []string{i.IP, i.Hostname} })
	return out
}

// HasOwnEndpoints reports whether the tenant writes the service's endpoints,
// which then go down to the host; otherwise the host's controller makes them.
// They may be anybody's, see [LeadsOut]: what reaches them comes from the space's
// own pods, and meets their network policy. Those of the space's API are Berth's
// to say.
func HasOwnEndpoints(v *corev1.Service) bool {
	return len(v.Spec.Selector) == 0 && v.Spec.Type == corev1.ServiceTypeClusterIP &&
		(v.Namespace != metav1.NamespaceDefault || v.Name != "kubernetes")
}

// TakesEndpoints reports whether endpoints that a tenant wrote may be on the
// host for a host service.
func TakesEndpoints(host *corev1.Service) bool {
	return host.Spec.Type == corev1.ServiceTypeClusterIP && len(host.Spec.Selector) == 0
}

// LeadsOut reports whether a service may lead to what is not a pod of the
// space's: by a name or by endpoints that the tenant writes, or to the space's
// API. The space's pods can't reach those, by their network policies. A controller that
// reaches them in the space's stead is under no such policy: it must not be led there.
func LeadsOut(v *corev1.Service) bool {
	return v.Spec.Type == corev1.ServiceTypeExternalName || len(v.Spec.Selector) == 0
}
