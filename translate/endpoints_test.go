// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package translate_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"k8s.io/kubernetes/pkg/apis/discovery"
	_ "k8s.io/kubernetes/pkg/apis/discovery/install" // defaults and conversions
	discoveryvalidation "k8s.io/kubernetes/pkg/apis/discovery/validation"
	"k8s.io/utils/ptr"

	"github.com/berth-dev/berth/bounds"
	"github.com/berth-dev/berth/translate"
	"github.com/berth-dev/berth/translate/sample"
)

func slice(endpoints, addresses, ports int) *discoveryv1.EndpointSlice {
	v := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "x"}, AddressType: discoveryv1.AddressTypeIPv4,
		Ports: make([]discoveryv1.EndpointPort, ports),
	}
	for i := range endpoints {
		e := discoveryv1.Endpoint{}
		for j := range addresses {
			e.Addresses = append(e.Addresses, fmt.Sprintf("10.%d.%d.%d", j, i/250, i%250))
		}
		v.Endpoints = append(v.Endpoints, e)
	}
	return v
}

// N1: Kubernetes takes a thousand endpoints of a hundred addresses each, and
// 20000 ports. All spaces' lookups would pay for them.
func TestEndpointsOfTenantsAreBounded(t *testing.T) {
	endpoints := func(subsets, addresses, notReady, ports int) field.ErrorList {
		v := &corev1.Endpoints{} //nolint:staticcheck // tenants may still write them
		for range subsets {
			v.Subsets = append(v.Subsets, corev1.EndpointSubset{ //nolint:staticcheck // as above
				Addresses: make([]corev1.EndpointAddress, addresses), NotReadyAddresses: make([]corev1.EndpointAddress, notReady),
				Ports: make([]corev1.EndpointPort, ports),
			})
		}
		return translate.CheckEndpoints(v)
	}
	for name, tc := range map[string]struct {
		reason string
		errs   field.ErrorList
		want   string
	}{
		"Usual":      {"the most that Kubernetes' own controller writes", translate.CheckEndpointSlice(slice(1000, 1, 5)), ""},
		"Addresses":  {"many of each endpoint", translate.CheckEndpointSlice(slice(1000, 100, 1)), "endpoints: Invalid value: 100000"},
		"Ports":      {"", translate.CheckEndpointSlice(slice(1, 1, 20000)), "ports: Invalid value: 20000"},
		"Targets":    {"S4: each is a rule on every node", translate.CheckEndpointSlice(slice(51, 1, 100)), "endpoints: Invalid value: 5100: 5100 targets, at most 5000 are possible (limit endpoint-targets)"},
		"Endpoints":  {"", endpoints(2, 250, 250, 5), ""},
		"AllSubsets": {"S4", endpoints(2, 20, 6, 100), "subsets: Invalid value: 5200"},
		"Subsets":    {"many of each subset", endpoints(200, 6, 0, 1), "subsets: Invalid value: 1200"},
		"NotReady":   {"they are mirrored, too", endpoints(1, 1, 1000, 1), "subsets: Invalid value: 1001"},
		"SubsetPort": {"", endpoints(1, 1, 0, 101), "subsets[0].ports: Invalid value: 101"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := fmt.Sprint(tc.errs.ToAggregate()); (len(tc.errs) > 0) != (tc.want != "") || !strings.Contains(got, tc.want) {
				t.Errorf("%s: got %s, want %q", tc.reason, got, tc.want)
			}
		})
	}
}

// N1: what was stored before there was the check, or is mirrored, is cut.
func TestTooManyEndpointsDoNotReachTheHost(t *testing.T) {
	host := sample.Demo().EndpointSlice(slice(1000, 100, 20000))
	if len(host.Endpoints) != 0 || len(host.Ports) != bounds.EndpointPorts.Max() || len(translate.CheckEndpointSlice(host)) > 0 {
		t.Errorf("the host gets %d endpoints and %d ports", len(host.Endpoints), len(host.Ports))
	}
	if host = sample.Demo().EndpointSlice(slice(1000, 1, 100)); len(host.Endpoints) != 50 || len(host.Ports) != 100 {
		t.Errorf("S4: of too many targets the host gets %d endpoints and %d ports", len(host.Endpoints), len(host.Ports))
	}
	host = sample.Demo().EndpointSlice(slice(1000, 1, 5))
	if len(host.Endpoints) != 1000 || len(host.Ports) != 5 {
		t.Errorf("of what is allowed the host gets %d endpoints and %d ports", len(host.Endpoints), len(host.Ports))
	}
}

// S1, N1: the tenant's own addresses go down for its own service, without what
// they say of nodes, zones and objects.
func TestEndpointSliceGoesToItsOwnHostService(t *testing.T) {
	v := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "db-x", UID: "e-uid", Labels: map[string]string{
			"kubernetes.io/service-name": "db", "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io",
		}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints: []discoveryv1.Endpoint{{
			Addresses: []string{"203.0.113.7"}, Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(true)}, Hostname: ptr.To("a"),
			NodeName: ptr.To("kind-worker"), Zone: ptr.To("eu-1"), TargetRef: &corev1.ObjectReference{Kind: "Pod", Namespace: "other", Name: "x"},
			Hints: &discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: "eu-1"}}}, DeprecatedTopology: map[string]string{"zone": "eu-1"},
		}},
		Ports: []discoveryv1.EndpointPort{{Name: ptr.To("pg"), Port: ptr.To[int32](5432), Protocol: ptr.To(corev1.ProtocolTCP)}},
	}
	want := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "berth-demo", Name: "demo--default--db-x",
			Labels: map[string]string{
				"app.kubernetes.io/managed-by": "berth", "berth.dev/space": "demo", "berth.dev/namespace": "default",
				"kubernetes.io/service-name": "demo--default--db", "endpointslice.kubernetes.io/managed-by": "syncer.berth.dev",
			},
			Annotations: map[string]string{"berth.dev/namespace": "default", "berth.dev/name": "db-x", "berth.dev/uid": "e-uid"},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints: []discoveryv1.Endpoint{{
			Addresses: []string{"203.0.113.7"}, Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(true)}, Hostname: ptr.To("a"),
		}},
		Ports: []discoveryv1.EndpointPort{{Name: ptr.To("pg"), Port: ptr.To[int32](5432), Protocol: ptr.To(corev1.ProtocolTCP)}},
	}
	host := sample.Demo().EndpointSlice(v)
	if diff := cmp.Diff(want, host); diff != "" {
		t.Errorf("host slice: -want +got:\n%s", diff)
	}
	sample.CheckNoSharedMemory(t, v, host)
	validateSlice(t, host)

	have := want.DeepCopy()
	if translate.PushEndpointSlice(host, have) {
		t.Error("a push onto an equal slice reports a change")
	}
	v.Endpoints[0].Addresses = []string{"203.0.113.8"}
	if host = sample.Demo().EndpointSlice(v); !translate.PushEndpointSlice(host, have) || have.Endpoints[0].Addresses[0] != "203.0.113.8" {
		t.Errorf("another address is not pushed: %v", have.Endpoints)
	}
	if translate.PushEndpointSlice(host, have) {
		t.Error("a second push reports a change")
	}
}

// A slice of no service stays one: its name is no label that a host takes.
func TestEndpointSliceOfNoServiceIsValid(t *testing.T) {
	host := sample.Demo().EndpointSlice(&discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "x"}, AddressType: discoveryv1.AddressTypeIPv4})
	if name, labelled := host.Labels[discoveryv1.LabelServiceName]; labelled {
		t.Errorf("service %q", name)
	}
	validateSlice(t, host)
}

func validateSlice(t *testing.T, slice *discoveryv1.EndpointSlice) {
	internal := &discovery.EndpointSlice{}
	if err := legacyscheme.Scheme.Convert(slice, internal, nil); err != nil {
		t.Fatalf("convert slice: %v", err)
	}
	if errs := discoveryvalidation.ValidateEndpointSliceCreate(internal); len(errs) > 0 {
		t.Errorf("the host refuses it: %v", errs.ToAggregate())
	}
}
