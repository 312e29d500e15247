// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package hostcache

import (
	"fmt"
	"slices"
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berth-dev/berth/bounds"
)

// N1: an index of all spaces is no larger for one slice than a tenant may write
// it, whatever the slice holds.
func TestASliceIsIndexedByABoundedNumberOfAddresses(t *testing.T) {
	large := &discoveryv1.EndpointSlice{}
	for i := range 1000 {
		e := discoveryv1.Endpoint{}
		for j := range 100 {
			e.Addresses = append(e.Addresses, fmt.Sprintf("10.%d.%d.%d", j, i/250, i%250))
		}
		large.Endpoints = append(large.Endpoints, e)
	}
	if got := len(sliceAddresses(large)); got != bounds.EndpointAddresses.Max() {
		t.Errorf("indexed by %d addresses", got)
	}
	small := &discoveryv1.EndpointSlice{Endpoints: []discoveryv1.Endpoint{
		{Addresses: []string{"10.0.0.1", "::ffff:10.0.0.1", "no address"}}, {Addresses: []string{"fd00:0::1"}},
	}}
	got := sliceAddresses(small)
	slices.Sort(got)
	if !slices.Equal(got, []string{"10.0.0.1", "fd00::1"}) {
		t.Errorf("indexed by %q", got)
	}
}

// N1: nor for one ingress; what the host's admins claim all counts.
func TestATenantsIngressIsIndexedByABoundedNumberOfHosts(t *testing.T) {
	for namespace, want := range map[string]int{"berth-a": bounds.IngressHosts.Max(), "ingress": 2000} {
		i := &networkingv1.Ingress{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "x"}}
		for n := range 2000 {
			i.Spec.Rules = append(i.Spec.Rules, networkingv1.IngressRule{Host: fmt.Sprintf("h%d.example.com", n)})
		}
		if hosts, err := indexClaims(i); err != nil || len(hosts) != want {
			t.Errorf("in %s, indexed by %d hosts, want %d (%v)", namespace, len(hosts), want, err)
		}
	}
}
