// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package translate_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"k8s.io/kubernetes/pkg/apis/core"
	_ "k8s.io/kubernetes/pkg/apis/core/install" // services, claims and volumes in the scheme
	"k8s.io/kubernetes/pkg/apis/core/validation"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"

	"github.com/berth-dev/berth/translate"
	"github.com/berth-dev/berth/translate/pod"
	"github.com/berth-dev/berth/translate/sample"
)

// M4: what a tenant may not ask of the host with a service.
func TestCheckServiceRefusesWhatReachesForTheHost(t *testing.T) {
	selector := map[string]string{"app": "web"}
	cases := map[string]struct {
		reason string
		spec   corev1.ServiceSpec
		field  string // empty: passes
	}{
		"ClusterIP":    {"the usual", corev1.ServiceSpec{Type: corev1.ServiceTypeClusterIP, Selector: selector}, ""},
		"Headless":     {"of a stateful set", corev1.ServiceSpec{ClusterIP: "None", Selector: selector}, ""},
		"LoadBalancer": {"the host's default one", corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, Selector: selector}, ""},
		"OwnEndpoints": {"an address outside, for the space's pods", corev1.ServiceSpec{Type: corev1.ServiceTypeClusterIP}, ""},
		"ExternalIPs":  {"traffic of others", corev1.ServiceSpec{ExternalIPs: []string{"10.0.0.1"}, Selector: selector}, "spec.externalIPs"},
		"Class":        {"a load balancer of the tenant's own", corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, LoadBalancerClass: ptr.To("internal"), Selector: selector}, ""},
		"NoSelector":   {"which leads to nothing", corev1.ServiceSpec{Type: corev1.ServiceTypeNodePort}, ""},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			errs := translate.CheckService(&tc.spec)
			if tc.field == "" {
				if len(errs) > 0 {
					t.Errorf("%s: refused: %v", tc.reason, errs)
				}
				return
			}
			if len(errs) != 1 || errs[0].Field != tc.field || errs[0].Detail == "" {
				t.Errorf("%s: want a refusal of %s, got %v", tc.reason, tc.field, errs)
			}
		})
	}
}

// S1, S3: one service, whole, as the host gets it.
func TestServiceSelectsTheHostPodsOfItsNamespace(t *testing.T) {
	v := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: "db", UID: "s-uid", Labels: map[string]string{"service.kubernetes.io/service-proxy-name": "x"},
			Annotations: map[string]string{"service.beta.kubernetes.io/aws-load-balancer-internal": "true"},
		},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeLoadBalancer, ClusterIP: "10.1.0.7", ClusterIPs: []string{"10.1.0.7"},
			Selector: map[string]string{"app": "db", "berth.dev/space": "other", "topology.kubernetes.io/zone": "a"}, Ports: []corev1.ServicePort{{Port: 5432, TargetPort: intstr.FromString("pg")}},
			ExternalIPs: []string{"10.0.0.1"}, LoadBalancerIP: "10.0.0.2", SessionAffinity: corev1.ServiceAffinityClientIP,
		},
	}
	want := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "berth-demo", Name: "demo--default--db",
			Labels:      map[string]string{"app.kubernetes.io/managed-by": "berth", "berth.dev/space": "demo", "berth.dev/namespace": "default"},
			Annotations: map[string]string{"berth.dev/namespace": "default", "berth.dev/name": "db", "berth.dev/uid": "s-uid"},
		},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeLoadBalancer, ClusterIP: "10.1.0.7", ClusterIPs: []string{"10.1.0.7"},
			Selector: map[string]string{"app": "db", "berth.dev/space": "demo", "berth.dev/namespace": "default", "berth.dev/zone": "a", "label.berth.dev/berth.dev.space---ohwz7cbhe6at2xypk7hqohbsma": "other"},
			Ports:    []corev1.ServicePort{{Port: 5432, TargetPort: intstr.FromString("pg")}}, SessionAffinity: corev1.ServiceAffinityClientIP,
		},
	}
	before := v.DeepCopy()
	host := sample.Demo().Service(v)
	if diff := cmp.Diff(want, host); diff != "" {
		t.Errorf("host service: -want +got:\n%s", diff)
	}
	if diff := cmp.Diff(before, v); diff != "" {
		t.Errorf("the argument changed: -before +after:\n%s", diff)
	}
	sample.CheckNoSharedMemory(t, v, host)
}

// A service that selects nothing must not begin to select on the host.
func TestAServiceWithoutASelectorKeepsNone(t *testing.T) {
	for name, spec := range map[string]corev1.ServiceSpec{
		"OwnEndpoints": {Type: corev1.ServiceTypeClusterIP},
		"ExternalName": {Type: corev1.ServiceTypeExternalName, ExternalName: "example.com", Selector: map[string]string{"app": "x"}},
	} {
		host := sample.Demo().Service(&corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "x"}, Spec: spec})
		if len(host.Spec.Selector) > 0 {
			t.Errorf("%s: selector %v", name, host.Spec.Selector)
		}
	}
}

// M4: endpoints that a tenant writes are not reached from outside (CVE-2021-25740),
// and no class of a tenant's chooses among the host's load balancers.
func TestHostileServicesReachNothingOfTheHosts(t *testing.T) {
	nothing := map[string]string{"berth.dev/space": "demo", "berth.dev/namespace": "default", "berth.dev/nothing": "true"}
	selecting := map[string]string{"berth.dev/space": "demo", "berth.dev/namespace": "default", "app": "web"}
	ports := func(node int32) []corev1.ServicePort { return []corev1.ServicePort{{Port: 80, NodePort: node}} }
	for name, tc := range map[string]struct {
		reason     string
		spec, want corev1.ServiceSpec
		warnings   int
	}{
		"NodePort": {
			"it is the tenant's to write endpoints", corev1.ServiceSpec{Type: corev1.ServiceTypeNodePort, Ports: ports(30000)},
			corev1.ServiceSpec{Type: corev1.ServiceTypeNodePort, Ports: ports(30000), Selector: nothing}, 1,
		},
		"LoadBalancer": {
			"as well", corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, Ports: ports(30000)},
			corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, Ports: ports(30000), Selector: nothing}, 1,
		},
		"Class": {
			"the node ports are for it", corev1.ServiceSpec{
				Type: corev1.ServiceTypeLoadBalancer, LoadBalancerClass: ptr.To("internal"), Selector: map[string]string{"app": "web"}, Ports: ports(30000),
				AllocateLoadBalancerNodePorts: ptr.To(true), ExternalTrafficPolicy: corev1.ServiceExternalTrafficPolicyCluster, LoadBalancerSourceRanges: []string{"10.0.0.0/8"},
			},
			corev1.ServiceSpec{Type: corev1.ServiceTypeNodePort, Selector: selecting, Ports: ports(30000), ExternalTrafficPolicy: corev1.ServiceExternalTrafficPolicyCluster}, 1,
		},
		"class without ports": {
			"it leads to pods", corev1.ServiceSpec{
				Type: corev1.ServiceTypeLoadBalancer, LoadBalancerClass: ptr.To("internal"), Ports: ports(30000),
				AllocateLoadBalancerNodePorts: ptr.To(false), ExternalTrafficPolicy: corev1.ServiceExternalTrafficPolicyLocal,
			},
			corev1.ServiceSpec{Type: corev1.ServiceTypeClusterIP, Selector: nothing, Ports: ports(0)}, 2,
		},
	} {
		t.Run(name, func(t *testing.T) {
			v := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "x"}, Spec: tc.spec}
			got := sample.Demo().Service(v)
			if diff := cmp.Diff(tc.want, got.Spec); diff != "" {
				t.Errorf("%s: -want +got:\n%s", tc.reason, diff)
			}
			if warnings := translate.ServiceWarnings(&tc.spec); len(warnings) != tc.warnings {
				t.Errorf("the tenant is warned with %q, want %d", warnings, tc.warnings)
			}
			if translate.HasOwnEndpoints(v) {
				t.Error("endpoints that the tenant writes go to the host")
			}
		})
	}
	marked := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "x", Labels: map[string]string{"berth.dev/nothing": "true"}}}
	if host := pod.ToHost(sample.Demo(), marked, pod.Surroundings{}); host.Labels["berth.dev/nothing"] != "" {
		t.Errorf("a tenant's pod has the label that no pod has: %v", host.Labels)
	}
}

// tenantService draws a service as a space's API server has it.
func tenantService(t *rapid.T) *corev1.Service {
	v := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: sample.Of(t, "name", "db", sample.LongName('s', 60)), UID: "s-uid"}}
	spec := &v.Spec
	spec.Type = sample.Of(t, "type", corev1.ServiceTypeClusterIP, corev1.ServiceTypeNodePort, corev1.ServiceTypeLoadBalancer, corev1.ServiceTypeExternalName)
	spec.Selector = map[string]string{"app": "db"}
	for i, protocol := range []corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolTCP}[:rapid.IntRange(1, 3).Draw(t, "ports")] {
		port := corev1.ServicePort{Name: sample.Of(t, "port", "a", "b", "c") + string(rune('0'+i)), Port: int32(80 + i/2), Protocol: protocol}
		spec.Ports = append(spec.Ports, port)
	}
	spec.SessionAffinity = sample.Of(t, "affinity", "", corev1.ServiceAffinityClientIP)
	if spec.Type == corev1.ServiceTypeNodePort || spec.Type == corev1.ServiceTypeLoadBalancer {
		spec.Selector = sample.Of(t, "selector", spec.Selector, nil)
	}
	if spec.Type == corev1.ServiceTypeLoadBalancer {
		spec.LoadBalancerClass = sample.Of(t, "class", nil, ptr.To("example.com/own"))
		spec.AllocateLoadBalancerNodePorts = sample.Of(t, "allocates", nil, ptr.To(true), ptr.To(false))
		spec.LoadBalancerSourceRanges = sample.Of(t, "ranges", nil, []string{"203.0.113.0/24"})
		spec.ExternalTrafficPolicy = sample.Of(t, "policy", "", corev1.ServiceExternalTrafficPolicyLocal)
	}
	if spec.Type == corev1.ServiceTypeExternalName {
		spec.ExternalName = "example.com"
	} else if rapid.Bool().Draw(t, "allocated") {
		storeService(t, v, 31000)
	} else if spec.Type == corev1.ServiceTypeClusterIP && rapid.Bool().Draw(t, "headless") {
		spec.ClusterIP, spec.ClusterIPs = corev1.ClusterIPNone, []string{corev1.ClusterIPNone}
	}
	legacyscheme.Scheme.Default(v)
	return v
}

// storeService does to service what an API server does that stores it: defaults
// and allocations, of node ports from first on.
func storeService(t *rapid.T, service *corev1.Service, first int32) {
	legacyscheme.Scheme.Default(service)
	spec := &service.Spec
	if spec.Type == corev1.ServiceTypeExternalName {
		return
	}
	if spec.ClusterIP == "" {
		spec.ClusterIP = sample.Of(t, "cluster IP", "10.1.0.7", "10.1.0.8")
	}
	spec.ClusterIPs = []string{spec.ClusterIP}
	spec.IPFamilies, spec.IPFamilyPolicy = []corev1.IPFamily{corev1.IPv4Protocol}, ptr.To(corev1.IPFamilyPolicySingleStack)
	if spec.Type == corev1.ServiceTypeClusterIP {
		return
	}
	for i := range spec.Ports {
		if spec.Ports[i].NodePort == 0 {
			spec.Ports[i].NodePort = first + int32(i)
		}
	}
	if spec.Type == corev1.ServiceTypeLoadBalancer && spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal {
		spec.HealthCheckNodePort = first + 9
	}
}

// S7: what the host has allocated is not the tenant's to undo: once stored, a
// service is as wanted, and a change is pushed once.
func TestPushServiceLeavesTheHostsAllocations(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := tenantService(t)
		want := sample.Demo().Service(v)
		have := want.DeepCopy()
		storeService(t, have, 30000)
		stored := have.DeepCopy()
		if translate.PushService(want, have) {
			t.Fatalf("a push onto the stored service reports a change: -stored +pushed:\n%s", cmp.Diff(stored, have))
		}
		changed := v.DeepCopy()
		changed.Spec.Ports[0].TargetPort = intstr.FromInt32(8080)
		want = sample.Demo().Service(changed)
		if !translate.PushService(want, have) {
			t.Fatalf("another target port is not pushed")
		}
		for i, port := range have.Spec.Ports {
			if port.NodePort != stored.Spec.Ports[i].NodePort {
				t.Fatalf("port %d loses node port %d for %d", i, stored.Spec.Ports[i].NodePort, port.NodePort)
			}
		}
		if translate.PushService(want, have) {
			t.Fatalf("a second push reports a change")
		}
	})
}

func TestPushServiceChangesWhatTheTenantOwns(t *testing.T) {
	base := func() *corev1.Service {
		return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "db"}, Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeNodePort, Selector: map[string]string{"app": "db"}, ClusterIP: "10.1.0.7", ClusterIPs: []string{"10.1.0.7"},
			Ports: []corev1.ServicePort{{Name: "a", Port: 80, Protocol: corev1.ProtocolTCP}, {Name: "b", Port: 80, Protocol: corev1.ProtocolUDP}},
		}}
	}
	cases := map[string]struct {
		reason string
		do     func(v *corev1.Service)
		want   func(spec *corev1.ServiceSpec)
	}{
		"Selector": {
			"pods are chosen by the tenant", func(v *corev1.Service) { v.Spec.Selector = map[string]string{"app": "x"} },
			func(spec *corev1.ServiceSpec) { spec.Selector["app"] = "x" },
		},
		"SwappedPorts": {
			"node ports follow the port's number and protocol", func(v *corev1.Service) { v.Spec.Ports[0], v.Spec.Ports[1] = v.Spec.Ports[1], v.Spec.Ports[0] },
			func(spec *corev1.ServiceSpec) { spec.Ports[0], spec.Ports[1] = spec.Ports[1], spec.Ports[0] },
		},
		"AskedNodePort": {
			"a node port that the tenant names", func(v *corev1.Service) { v.Spec.Ports[0].NodePort = 32000 },
			func(spec *corev1.ServiceSpec) { spec.Ports[0].NodePort = 32000 },
		},
		"ToClusterIP": {
			"a service that has none any more", func(v *corev1.Service) { v.Spec.Type = corev1.ServiceTypeClusterIP },
			func(spec *corev1.ServiceSpec) {
				spec.Type, spec.Ports[0].NodePort, spec.Ports[1].NodePort = corev1.ServiceTypeClusterIP, 0, 0
			},
		},
		"ToExternalName": {
			"nor an address", func(v *corev1.Service) {
				v.Spec = corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "example.com"}
			},
			func(spec *corev1.ServiceSpec) {
				*spec = corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "example.com"}
			},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			have := sample.Demo().Service(base())
			have.Spec.Ports[0].NodePort, have.Spec.Ports[1].NodePort = 30000, 30001
			expected := have.Spec.DeepCopy()
			tc.want(expected)
			v := base()
			tc.do(v)
			if !translate.PushService(sample.Demo().Service(v), have) {
				t.Errorf("%s: no change is reported", tc.reason)
			}
			if diff := cmp.Diff(*expected, have.Spec); diff != "" {
				t.Errorf("%s: -want +got:\n%s", tc.reason, diff)
			}
		})
	}
}

// S1: what a space admits, the host does not refuse for its form.
func TestAServiceThatASpaceAdmitsIsValidOnTheHost(t *testing.T) {
	validate := func(t *rapid.T, service *corev1.Service) error {
		storeService(t, service, 30000) // an API server allocates first
		internal := &core.Service{}
		if err := legacyscheme.Scheme.Convert(service, internal, nil); err != nil {
			t.Fatalf("convert service: %v", err)
		}
		return validation.ValidateServiceCreate(internal).ToAggregate()
	}
	rapid.Check(t, func(t *rapid.T) {
		v := tenantService(t)
		if err := validate(t, v.DeepCopy()); err != nil {
			t.Fatalf("tenantService draws what no space admits: %v", err)
		}
		if err := validate(t, sample.Demo().Service(v)); err != nil {
			t.Fatalf("the host refuses it: %v", err)
		}
	})
}

func TestPullServiceStatusIsTheLoadBalancers(t *testing.T) {
	host := &corev1.Service{Status: corev1.ServiceStatus{
		LoadBalancer: corev1.LoadBalancerStatus{Ingress: []corev1.LoadBalancerIngress{{IP: "203.0.113.7", Ports: []corev1.PortStatus{{Port: 80}}}}},
		Conditions:   []metav1.Condition{{Type: "LoadBalancerOf", Message: "kind-worker"}},
	}}
	got := sample.Demo().PullServiceStatus(&corev1.Service{}, host, func(string) bool { return false })
	if diff := cmp.Diff(corev1.ServiceStatus{LoadBalancer: host.Status.LoadBalancer}, got); diff != "" {
		t.Errorf("status: -want +got:\n%s", diff)
	}
	sample.CheckNoSharedMemory(t, host, &got)
}

// M4: nothing of the host's stands where the tenant's own load balancer writes.
func TestPullServiceStatusLeavesThatOfOwnLoadBalancers(t *testing.T) {
	v := &corev1.Service{
		Spec:   corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, LoadBalancerClass: ptr.To("internal")},
		Status: corev1.ServiceStatus{LoadBalancer: corev1.LoadBalancerStatus{Ingress: []corev1.LoadBalancerIngress{{IP: "203.0.113.1"}}}},
	}
	if diff := cmp.Diff(v.Status, sample.Demo().PullServiceStatus(v, &corev1.Service{}, func(string) bool { return false })); diff != "" {
		t.Errorf("status: -want +got:\n%s", diff)
	}
}

func TestHasOwnEndpointsOfServicesWithoutASelector(t *testing.T) {
	selector := map[string]string{"app": "web"}
	cases := map[string]struct {
		reason string
		spec   corev1.ServiceSpec
		want   bool
	}{
		"Selector":     {"the host's controller makes them", corev1.ServiceSpec{Type: corev1.ServiceTypeClusterIP, Selector: selector}, false},
		"NoSelector":   {"the tenant writes them", corev1.ServiceSpec{Type: corev1.ServiceTypeClusterIP}, true},
		"ExternalName": {"it has none", corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName}, false},
		"LoadBalancer": {"it is reached from outside, and leads nowhere", corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer}, false},
	}
	for name, tc := range cases {
		if got := translate.HasOwnEndpoints(&corev1.Service{Spec: tc.spec}); got != tc.want {
			t.Errorf("%s: %s: got %v", name, tc.reason, got)
		}
	}
}
