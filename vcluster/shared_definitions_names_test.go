// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package vcluster_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/berth-dev/berth/definitions"
	"github.com/berth-dev/berth/vcluster"
)

const gizmosCRD = "gizmos.example.com"

// localGizmos is a tenant's definition with another name that claims the kind of the platform's widgets.
func localGizmos() *apiextensionsv1.CustomResourceDefinition {
	crd := localWidgets()
	crd.Name, crd.Spec.Names.Plural = gizmosCRD, "gizmos"
	crd.Spec.Names.Singular = "gizmo"
	return crd
}

// waitForNames waits until a condition of a definition has a status.
func (o tenantOf) waitForNames(t *testing.T, name string, want apiextensionsv1.ConditionStatus) {
	t.Helper()
	eventually(t, func() error {
		crd, err := o.crds.ApiextensionsV1().CustomResourceDefinitions().Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, c := range crd.Status.Conditions {
			if c.Type == apiextensionsv1.NamesAccepted && c.Status == want {
				return nil
			}
		}
		return fmt.Errorf("the conditions of %s are %+v, want NamesAccepted %s", name, crd.Status.Conditions, want)
	})
}

// TestTwoDefinitionsThatClaimOneKind has a shared definition and a tenant's, which have different names, claim one kind. A tenant's that
// comes later isn't served before the shared one is gone, as upstream decides. If the tenant's comes first, both are served, because a
// shared definition has the names that the host has accepted. Nothing is lost (C1, C5).
func TestTwoDefinitionsThatClaimOneKind(t *testing.T) {
	t.Parallel()
	optional := &definitions.Shared{CRD: shared(t, hostWidgets()), InRange: true}
	gizmosOf := func(t *testing.T, space *vcluster.ControlPlane) dynamic.ResourceInterface {
		t.Helper()
		objects, err := dynamic.NewForConfig(space.Loopback())
		if err != nil {
			t.Fatal(err)
		}
		return objects.Resource(schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "gizmos"}).Namespace(metav1.NamespaceDefault)
	}
	t.Run("the shared one comes first", func(t *testing.T) {
		t.Parallel()
		c := config(t, "claimed")
		c.Definitions = &definitions.Source{}
		c.Definitions.Set(definitions.NewSet("", optional))
		space := start(t, c)
		tenant, gizmos := newTenantOf(t, space), gizmosOf(t, space)
		tenant.waitForSize(t, true)
		large, err := tenant.widgets.Create(t.Context(), widget("large", map[string]any{}), metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tenant.crds.ApiextensionsV1().CustomResourceDefinitions().Create(t.Context(), localGizmos(), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		tenant.waitForNames(t, gizmosCRD, apiextensionsv1.ConditionFalse)
		if diff := cmp.Diff(large, tenant.get(t, "large")); diff != "" {
			t.Errorf("the object of the definition that came first changed (-before +after):\n%s", diff)
		}
		c.Definitions.Set(nil)
		tenant.waitForNames(t, gizmosCRD, apiextensionsv1.ConditionTrue)
		eventually(t, func() error {
			_, err := gizmos.Create(t.Context(), widget("small", map[string]any{}), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			return err
		})
	})
	t.Run("the tenant's comes first", func(t *testing.T) {
		t.Parallel()
		c := config(t, "claiming")
		c.Definitions = &definitions.Source{}
		space := start(t, c)
		tenant, gizmos := newTenantOf(t, space), gizmosOf(t, space)
		tenant.define(t, localGizmos())
		var small *unstructured.Unstructured
		eventually(t, func() (err error) {
			small, err = gizmos.Create(t.Context(), widget("small", map[string]any{}), metav1.CreateOptions{})
			return err
		})
		check := func() {
			t.Helper()
			got, err := gizmos.Get(t.Context(), "small", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(small, got); diff != "" {
				t.Errorf("the object of the definition that came first changed (-before +after):\n%s", diff)
			}
		}
		c.Definitions.Set(definitions.NewSet("", optional))
		tenant.waitForSize(t, true)
		check()
		tenant.waitForNames(t, gizmosCRD, apiextensionsv1.ConditionTrue)
		large, err := tenant.widgets.Create(t.Context(), widget("large", map[string]any{}), metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		check()
		if diff := cmp.Diff(large, tenant.get(t, "large")); diff != "" {
			t.Errorf("the object of the shared definition changed (-before +after):\n%s", diff)
		}
		c.Definitions.Set(nil)
		eventually(t, func() error {
			_, err := tenant.crds.ApiextensionsV1().CustomResourceDefinitions().Get(t.Context(), widgetsCRD, metav1.GetOptions{})
			if err == nil {
				return fmt.Errorf("%s is there", widgetsCRD)
			}
			return nil
		})
		check()
	})
}
