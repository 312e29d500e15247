// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package vcluster_test

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// T5
func TestANewSpaceHoldsItsNamespaces(t *testing.T) {
	p := start(t, config(t, "fresh"))
	client := clientset(t, p.Loopback())
	for _, name := range []string{"default", "kube-system"} {
		eventually(t, func() error {
			_, err := client.CoreV1().Namespaces().Get(t.Context(), name, metav1.GetOptions{})
			return err
		})
	}
}
