// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package vcluster_test

import (
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// S6: nobody is sent to an API that pods do not reach, or not any more.
func TestTheAPIHasEndpointsOnlyWherePodsReachIt(t *testing.T) {
	c := config(t, "api")
	for _, served := range []bool{true, false, true} {
		c.KubernetesServiceServed = served
		p := start(t, c)
		client := clientset(t, p.Loopback())
		want := "[]"
		if served {
			want = "[10.96.0.1]"
		}
		eventually(t, func() error {
			slice, err := client.DiscoveryV1().EndpointSlices("default").Get(t.Context(), "kubernetes", metav1.GetOptions{})
			if err != nil {
				return err
			}
			addresses := []string{}
			for _, e := range slice.Endpoints {
				addresses = append(addresses, e.Addresses...)
			}
			if got := fmt.Sprint(addresses); got != want {
				return fmt.Errorf("served: %t: the addresses are %s, want %s", served, got, want)
			}
			return nil
		})
		stop(t, p)
	}
}
