// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package vcluster_test

import (
	"fmt"
	"testing"

	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berth-dev/berth/bounds"
)

// L3 (S2): an answer of discovery is encoded whole for each request, and as large as CRDs make it: it is accounted.
func TestHostileDiscoveryOfManyVersionsIsAccounted(t *testing.T) {
	account, p, config := bounded(t, bounds.Limits{bounds.MemoryBytes: 2 << 20})
	own, err := apiextensions.NewForConfig(p.Loopback())
	if err != nil {
		t.Fatal(err)
	}
	client := clientset(t, config).CoreV1().RESTClient()
	get := func(path string) error {
		_, err := client.Get().AbsPath(path).
			SetHeader("Accept", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json").MaxRetries(0).DoRaw(t.Context())
		return err
	}
	if err := get("/apis"); err != nil {
		t.Fatalf("without CRDs: %v", err)
	}
	const definitions, each = 50, 20
	for i := range definitions {
		d := definition(fmt.Sprint("kind", i), 0)
		if i == 0 {
			d.Spec.Group, d.Name = "example.org", d.Spec.Names.Plural+".example.org"
		}
		for n := 1; n < each; n++ {
			v := *d.Spec.Versions[0].DeepCopy()
			v.Name, v.Storage = fmt.Sprintf("v%d", n+1), false
			d.Spec.Versions = append(d.Spec.Versions, v)
		}
		if _, err := own.ApiextensionsV1().CustomResourceDefinitions().Create(t.Context(), d, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, func() error {
		if err := get("/apis"); !apierrors.IsRequestEntityTooLargeError(err) {
			return fmt.Errorf("discovery of %d versions gets %w", definitions*each, err)
		}
		return nil
	})
	if err := get("/apis/example.org/v1"); err != nil {
		t.Errorf("a group that is small: %v", err)
	}
	eventually(t, func() error {
		if used := account.Used(bounds.MemoryBytes); used != 0 {
			return fmt.Errorf("%d bytes are accounted with nothing under way", used)
		}
		return nil
	})
}
