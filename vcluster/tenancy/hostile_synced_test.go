// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package tenancy_test

import (
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/berth-dev/berth/access"
	"github.com/berth-dev/berth/definitions"
	"github.com/berth-dev/berth/internal/testcrd"
)

// C3, C6: a cluster admin of the space doesn't replace the definition of a kind that is synced, neither by one of its
// own, nor by an API server that answers for the group.
func TestHostileTenantsDoNotReplaceSyncedDefinitions(t *testing.T) {
	host := testcrd.New("example.com", "Gadget", &apiextensionsv1.JSONSchemaProps{Type: "object"})
	host.Spec.Names.Singular, host.Status.AcceptedNames.Singular = "gadget", "gadget"
	synced, err := definitions.ForSync(host, "v1")
	if err != nil {
		t.Fatal(err)
	}
	var none *definitions.Source
	e := startEnvWith(t, &access.State{Space: "solar", Tenant: "solar"}, none.WithSynced(synced))
	d, err := dynamic.NewForConfig(e.hostile()["a cluster admin"])
	if err != nil {
		t.Fatal(err)
	}
	gadgets := d.Resource(gvr("example.com", "v1", "gadgets")).Namespace("default")
	eventually(t, func() error {
		_, err := gadgets.List(t.Context(), metav1.ListOptions{})
		return err
	})
	crds, services := d.Resource(gvr("apiextensions.k8s.io", "v1", "customresourcedefinitions")), d.Resource(gvr("apiregistration.k8s.io", "v1", "apiservices"))
	own := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": map[string]any{"name": host.Name},
		"spec": map[string]any{
			"group": "example.com", "scope": "Namespaced", "names": map[string]any{"plural": "gadgets", "kind": "Gadget"},
			"versions": []any{map[string]any{
				"name": "v1", "served": true, "storage": true, "schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object"}},
			}},
		},
	}}
	_, created := crds.Create(t.Context(), own, metav1.CreateOptions{})
	_, tried := crds.Create(t.Context(), own, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	_, patched := crds.Patch(t.Context(), host.Name, types.MergePatchType, []byte(`{"spec":{"names":{"shortNames":["g"]}}}`), metav1.PatchOptions{})
	_, applied := crds.Apply(t.Context(), host.Name, own, metav1.ApplyOptions{FieldManager: "tenant", Force: true})
	for doing, err := range map[string]error{
		"create": created, "create as a dry run": tried, "patch": patched, "apply": applied, "delete": crds.Delete(t.Context(), host.Name, metav1.DeleteOptions{}),
	} {
		if err := forbidden(err, host.Name, "because it syncs these objects with the host"); err != nil {
			t.Errorf("%s: %s", doing, err)
		}
	}
	_, other := services.Create(t.Context(), aggregated("example.com", "v2"), metav1.CreateOptions{})
	_, same := services.Patch(t.Context(), "v1.example.com", types.MergePatchType, []byte(
		`{"metadata":{"labels":{"kube-aggregator.kubernetes.io/automanaged":null}},"spec":{"service":{"namespace":"default","name":"none","port":443},"insecureSkipTLSVerify":true}}`),
		metav1.PatchOptions{})
	for what, err := range map[string]error{"another version": other, "the synced version": same} {
		if err := forbidden(err, host.Name); err != nil {
			t.Errorf("%s can be handed over: %s", what, err)
		}
	}
}
