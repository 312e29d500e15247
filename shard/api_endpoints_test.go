// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package shard_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-dev/berth/internal/testhost"
	"github.com/berth-dev/berth/translate"
)

// S6, N1: the endpoints of a space's API are where its pods reach it, and tell
// nothing of the host. A tenant who deletes or forges them has them back, and
// leads nobody astray on the host meanwhile.
func TestTheEndpointsOfASpacesAPIAreItsClusterIP(t *testing.T) {
	in := startInside(t)
	c := virtual(t, startSpace(t, in.Shard, "api-endpoints"))
	whole := func(ctx context.Context) error {
		endpoints, err := c.CoreV1().Endpoints("default").Get(ctx, "kubernetes", metav1.GetOptions{})
		if err != nil {
			return err
		}
		slice, err := c.DiscoveryV1().EndpointSlices("default").Get(ctx, "kubernetes", metav1.GetOptions{})
		if err != nil {
			return err
		}
		got := []string{fmt.Sprint(endpoints.Subsets), slice.Labels[discoveryv1.LabelServiceName], fmt.Sprint(*slice.Ports[0].Port)}
		for _, e := range slice.Endpoints {
			got = append(got, e.Addresses...)
		}
		ip := in.address("api-endpoints")
		want := []string{fmt.Sprintf("[{[{%s  <nil> nil}] [] [{https 443 TCP <nil>}]}]", ip), "kubernetes", "443", ip}
		if diff := cmp.Diff(want, got); diff != "" {
			return errors.New(diff)
		}
		return nil
	}
	testhost.Eventually(t, "the endpoints are there", whole)
	forged := []byte(`{"endpoints":[{"addresses":["10.0.0.1"]}],"ports":[{"name":"https","port":1,"protocol":"TCP"}]}`)
	if _, err := c.DiscoveryV1().EndpointSlices("default").Patch(t.Context(), "kubernetes", types.MergePatchType, forged, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	testhost.Eventually(t, "a forged slice is mended", whole)
	if err := c.CoreV1().Endpoints("default").Delete(t.Context(), "kubernetes", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := c.DiscoveryV1().EndpointSlices("default").Delete(t.Context(), "kubernetes", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	testhost.Eventually(t, "deleted ones come back", whole)

	of := translate.Space{Name: "api-endpoints"}
	slices, err := testhost.Clientset(t, theHost(t).Config()).DiscoveryV1().EndpointSlices(of.HostNamespace()).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range slices.Items {
		for _, e := range s.Endpoints {
			if want := []string{"192.0.2.10"}; !cmp.Equal(e.Addresses, want) {
				t.Errorf("slice %s leads to %v on the host, want %v", s.Name, e.Addresses, want)
			}
		}
	}
}
