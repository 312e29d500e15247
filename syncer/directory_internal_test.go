// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package syncer

import (
	"fmt"
	"slices"
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/berth-dev/berth/translate"
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
	if got := len(sliceAddresses(large)); got != translate.MaxEndpointAddresses {
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
