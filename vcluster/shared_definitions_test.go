// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package vcluster_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/utils/ptr"

	"github.com/berth-dev/berth/definitions"
	"github.com/berth-dev/berth/vcluster"
)

var widgets = schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}

const widgetsCRD = "widgets.example.com"

// localWidgets is a tenant's definition: a widget has a color.
func localWidgets() *apiextensionsv1.CustomResourceDefinition {
	return widgetDefinition(map[string]apiextensionsv1.JSONSchemaProps{"color": {Type: "string"}})
}

// hostWidgets is the platform's: a widget has a size, which has a default, and it can be scaled.
func hostWidgets() *apiextensionsv1.CustomResourceDefinition {
	crd := widgetDefinition(map[string]apiextensionsv1.JSONSchemaProps{
		"size": {Type: "integer", Description: "how large the platform makes it", Default: &apiextensionsv1.JSON{Raw: []byte("3")}},
	})
	v := &crd.Spec.Versions[0]
	v.Schema.OpenAPIV3Schema.Properties["status"] = apiextensionsv1.JSONSchemaProps{
		Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{"size": {Type: "integer"}},
	}
	v.Subresources = &apiextensionsv1.CustomResourceSubresources{
		Status: &apiextensionsv1.CustomResourceSubresourceStatus{},
		Scale:  &apiextensionsv1.CustomResourceSubresourceScale{SpecReplicasPath: ".spec.size", StatusReplicasPath: ".status.size"},
	}
	return crd
}

func widgetDefinition(spec map[string]apiextensionsv1.JSONSchemaProps) *apiextensionsv1.CustomResourceDefinition {
	return &apiextensionsv1.CustomResourceDefinition{
		TypeMeta:   metav1.TypeMeta{APIVersion: "apiextensions.k8s.io/v1", Kind: "CustomResourceDefinition"},
		ObjectMeta: metav1.ObjectMeta{Name: widgetsCRD},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: "example.com", Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "widgets", Kind: "Widget"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: "v1", Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
					Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{
						"spec": {Type: "object", Properties: spec, Default: &apiextensionsv1.JSON{Raw: []byte("{}")}},
					},
				}},
			}},
		},
	}
}

func widget(name string, spec map[string]any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "example.com/v1", "kind": "Widget", "metadata": map[string]any{"name": name}, "spec": spec,
	}}
}

// tenantOf are the clients of a tenant in its space.
type tenantOf struct {
	crds      apiextensions.Interface
	widgets   dynamic.ResourceInterface
	discovery discovery.DiscoveryInterface
}

func newTenantOf(t *testing.T, p *vcluster.ControlPlane) tenantOf {
	t.Helper()
	config := p.Loopback()
	config.QPS = -1
	crds, err := apiextensions.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	objects, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return tenantOf{crds, objects.Resource(widgets).Namespace(metav1.NamespaceDefault), crds.Discovery()}
}

// define creates a definition, and waits until it is established.
func (o tenantOf) define(t *testing.T, crd *apiextensionsv1.CustomResourceDefinition) *apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	api := o.crds.ApiextensionsV1().CustomResourceDefinitions()
	if _, err := api.Create(t.Context(), crd, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	var made *apiextensionsv1.CustomResourceDefinition
	eventually(t, func() (err error) {
		if made, err = api.Get(t.Context(), crd.Name, metav1.GetOptions{}); err != nil {
			return err
		}
		if !established(made) {
			return errors.New("it is not established")
		}
		return nil
	})
	return made
}

func established(crd *apiextensionsv1.CustomResourceDefinition) bool {
	return slices.ContainsFunc(crd.Status.Conditions, func(c apiextensionsv1.CustomResourceDefinitionCondition) bool {
		return c.Type == apiextensionsv1.Established && c.Status == apiextensionsv1.ConditionTrue
	})
}

// waitForSize waits until the definition in force is the platform's, which has sizes, or the tenant's.
func (o tenantOf) waitForSize(t *testing.T, want bool) {
	t.Helper()
	eventually(t, func() error {
		_, err := o.widgets.Create(t.Context(), widget("probe", map[string]any{"size": "large"}), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if has := apierrors.IsInvalid(err) && strings.Contains(err.Error(), "spec.size"); has != want || !has && err != nil {
			return fmt.Errorf("want sizes: %t, create a widget with a wrong one: %w", want, err)
		}
		return nil
	})
}

// shared is a definition as a host serves it, and spaces that have stored objects in these versions.
func shared(t *testing.T, crd *apiextensionsv1.CustomResourceDefinition, stored ...string) *apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	c := config(t, "host")
	c.Access = nil
	host := start(t, c)
	served, err := definitions.Serve(newTenantOf(t, host).define(t, crd), "the-share", stored...)
	if err != nil {
		t.Fatal(err)
	}
	return served
}

// TestASwitchOfDefinitionsKeepsObjects switches between the tenant's definition and the platform's, with objects of both (C2, C4, C5).
func TestASwitchOfDefinitionsKeepsObjects(t *testing.T) {
	t.Parallel()
	theirs := shared(t, hostWidgets())
	optional := &definitions.Shared{CRD: theirs, InRange: true}
	c := config(t, "switching")
	c.Definitions = &definitions.Source{}
	space := start(t, c)
	tenant := newTenantOf(t, space)
	own := tenant.define(t, localWidgets())
	red, err := tenant.widgets.Create(t.Context(), widget("red", map[string]any{"color": "red"}), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	list, err := tenant.widgets.List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	watched, err := tenant.widgets.Watch(t.Context(), metav1.ListOptions{ResourceVersion: list.GetResourceVersion()})
	if err != nil {
		t.Fatal(err)
	}
	defer watched.Stop()

	c.Definitions.Set(definitions.NewSet(definitions.LocalCRDFirst, optional))
	waitForReason(t, space, definitions.LocalFirst)
	if crd := tenant.crd(t); crd.UID != own.UID {
		t.Errorf("the definition in force is %s, want that of the tenant", crd.UID)
	}

	began := time.Now()
	c.Definitions.Set(definitions.NewSet(definitions.SystemCRDFirst, optional))
	tenant.waitForSize(t, true)
	t.Log("the switch took", time.Since(began))
	checkExpired(t, watched)
	if _, err := tenant.widgets.Get(t.Context(), "red", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("get an object of a definition that is not in force: %v, want that it isn't found", err)
	}
	if old, err := tenant.widgets.Watch(t.Context(), metav1.ListOptions{ResourceVersion: list.GetResourceVersion()}); err == nil {
		checkExpired(t, old)
	} else if !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) {
		t.Errorf("watch from before the switch: %v, want that it is expired", err)
	}
	if crd := tenant.crd(t); crd.Annotations[definitions.AnnotationShare] != "the-share" || crd.Spec.Versions[0].Subresources == nil {
		t.Errorf("the definition in force is %v, want that of the platform", crd.Annotations)
	}
	large, err := tenant.widgets.Create(t.Context(), widget("large", map[string]any{}), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if size, _, _ := unstructured.NestedInt64(large.Object, "spec", "size"); size != 3 {
		t.Errorf("the platform's default is %d, want 3", size)
	}
	tenant.checkServesSizes(t)
	if large, err = tenant.widgets.Get(t.Context(), "large", metav1.GetOptions{}); err != nil {
		t.Fatal(err)
	}

	c.Definitions.Set(definitions.NewSet(definitions.NeverUseSystemCRDUnlessForced, optional))
	tenant.waitForSize(t, false)
	if diff := cmp.Diff(red, tenant.get(t, "red")); diff != "" {
		t.Errorf("the tenant's object changed (-before +after):\n%s", diff)
	}
	if _, err := tenant.widgets.Get(t.Context(), "large", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("get an object of the platform's definition: %v, want that it isn't found", err)
	}
	if crd := tenant.crd(t); crd.UID != own.UID || cmp.Diff(own, crd) != "" {
		t.Errorf("the tenant's definition changed (-before +after):\n%s", cmp.Diff(own, crd))
	}

	c.Definitions.Set(definitions.NewSet(definitions.SystemCRDFirst, optional))
	tenant.waitForSize(t, true)
	if diff := cmp.Diff(large, tenant.get(t, "large")); diff != "" {
		t.Errorf("the object of the platform's definition changed (-before +after):\n%s", diff)
	}

	// While the space sleeps, the share ends.
	stop(t, space)
	c.Definitions.Set(definitions.NewSet(definitions.SystemCRDFirst))
	tenant = newTenantOf(t, start(t, c))
	tenant.waitForSize(t, false)
	if diff := cmp.Diff(red, tenant.get(t, "red")); diff != "" {
		t.Errorf("the tenant's object changed (-before +after):\n%s", diff)
	}
}

// checkServesSizes checks that all of what the API server makes of a definition is by the platform's.
func (o tenantOf) checkServesSizes(t *testing.T) {
	t.Helper()
	eventually(t, func() error {
		resources, err := o.discovery.ServerResourcesForGroupVersion("example.com/v1")
		if err != nil {
			return err
		}
		for _, r := range resources.APIResources {
			if r.Name == "widgets/scale" {
				return nil
			}
		}
		return fmt.Errorf("discovery has %v, want widgets/scale", resources.APIResources)
	})
	document, err := o.discovery.RESTClient().Get().AbsPath("/openapi/v3/apis/example.com/v1").DoRaw(t.Context())
	if err != nil || !strings.Contains(string(document), "how large the platform makes it") {
		t.Errorf("the OpenAPI document doesn't describe the platform's definition: %v", err)
	}
	applied := widget("large", map[string]any{"size": int64(4)})
	after, err := o.widgets.Apply(t.Context(), "large", applied, metav1.ApplyOptions{FieldManager: "test", Force: true})
	if err != nil {
		t.Error(err)
		return
	}
	if err := unstructured.SetNestedField(after.Object, int64(4), "status", "size"); err != nil {
		t.Error(err)
	}
	if _, err := o.widgets.UpdateStatus(t.Context(), after, metav1.UpdateOptions{}); err != nil {
		t.Error(err)
	}
	scale, err := o.widgets.Get(t.Context(), "large", metav1.GetOptions{}, "scale")
	if err != nil {
		t.Error(err)
		return
	}
	if n, _, _ := unstructured.NestedInt64(scale.Object, "status", "replicas"); n != 4 {
		t.Errorf("the scale is %v, want 4 replicas", scale.Object["status"])
	}
}

// TestAForcedDefinitionOverridesTheTenants has a forced share come and go (C3, C5).
func TestAForcedDefinitionOverridesTheTenants(t *testing.T) {
	t.Parallel()
	forced := &definitions.Shared{CRD: shared(t, hostWidgets()), Forced: true, InRange: true}
	c := config(t, "forced")
	c.Definitions = &definitions.Source{}
	tenant := newTenantOf(t, start(t, c))
	own := tenant.define(t, localWidgets())
	red, err := tenant.widgets.Create(t.Context(), widget("red", map[string]any{"color": "red"}), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, policy := range []definitions.Policy{"", definitions.NeverUseSystemCRDUnlessForced} {
		c.Definitions.Set(nil)
		tenant.waitForSize(t, false)
		c.Definitions.Set(definitions.NewSet(policy, forced))
		tenant.waitForSize(t, true)
		api := tenant.crds.ApiextensionsV1().CustomResourceDefinitions()
		changed := tenant.crd(t)
		changed.Spec.Names.ShortNames = []string{"w"}
		_, created := api.Create(t.Context(), localWidgets(), metav1.CreateOptions{})
		_, updated := api.Update(t.Context(), changed, metav1.UpdateOptions{})
		_, applied := api.Patch(t.Context(), widgetsCRD, types.ApplyPatchType, encoded(t, localWidgets()), metav1.PatchOptions{FieldManager: "test", Force: ptr.To(true)})
		for doing, err := range map[string]error{
			"create": created, "update": updated, "apply": applied, "delete": api.Delete(t.Context(), widgetsCRD, metav1.DeleteOptions{}),
		} {
			if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), widgetsCRD) || !strings.Contains(err.Error(), "the-share") {
				t.Errorf("%s a forced definition: %v, want that it is forbidden by the share", doing, err)
			}
		}
	}
	c.Definitions.Set(nil)
	tenant.waitForSize(t, false)
	if diff := cmp.Diff(red, tenant.get(t, "red")); diff != "" {
		t.Errorf("the tenant's object changed (-before +after):\n%s", diff)
	}
	if diff := cmp.Diff(own, tenant.crd(t)); diff != "" {
		t.Errorf("the tenant's definition changed (-before +after):\n%s", diff)
	}
}

// TestATenantOverridesAnOptionalDefinition defines what the platform shares in the space's own way, in each way that a client has, and
// deletes it again (C4, C5).
func TestATenantOverridesAnOptionalDefinition(t *testing.T) {
	t.Parallel()
	optional := &definitions.Shared{CRD: shared(t, hostWidgets()), InRange: true}
	c := config(t, "overriding")
	c.Definitions = &definitions.Source{}
	c.Definitions.Set(definitions.NewSet("", optional))
	tenant := newTenantOf(t, start(t, c))
	api := tenant.crds.ApiextensionsV1().CustomResourceDefinitions()
	tenant.waitForSize(t, true)
	large, err := tenant.widgets.Create(t.Context(), widget("large", map[string]any{}), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if all, err := api.List(t.Context(), metav1.ListOptions{}); err != nil || len(all.Items) != 1 || !definitions.IsShared(&all.Items[0]) {
		t.Errorf("list definitions: %v, %v, want the shared one", all, err)
	}
	if err := api.Delete(t.Context(), widgetsCRD, metav1.DeleteOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("delete a shared definition: %v, want that it is forbidden", err)
	}
	if _, err := api.Patch(t.Context(), widgetsCRD, types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}}}`), metav1.PatchOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("label a shared definition: %v, want that it is forbidden", err)
	}
	merged := localWidgets()
	merged.Status = apiextensionsv1.CustomResourceDefinitionStatus{}
	for way, override := range map[string]func(context.Context) error{
		"create": func(ctx context.Context) error {
			_, err := api.Create(ctx, localWidgets(), metav1.CreateOptions{})
			return err
		},
		"apply on the server": func(ctx context.Context) error {
			_, err := api.Patch(ctx, widgetsCRD, types.ApplyPatchType, encoded(t, localWidgets()), metav1.PatchOptions{FieldManager: "test"})
			return err
		},
		"apply on the client": func(ctx context.Context) error {
			_, err := api.Patch(ctx, widgetsCRD, types.MergePatchType, encoded(t, map[string]any{"spec": merged.Spec}), metav1.PatchOptions{})
			return err
		},
	} {
		if err := override(t.Context()); err != nil {
			t.Errorf("%s: %v", way, err)
			continue
		}
		tenant.waitForSize(t, false)
		if crd := tenant.crd(t); definitions.IsShared(crd) || crd.Annotations[definitions.AnnotationShare] != "" {
			t.Errorf("%s: the definition in force is the shared one", way)
		}
		if _, err := tenant.widgets.Create(t.Context(), widget("red", map[string]any{"color": "red"}), metav1.CreateOptions{}); err != nil {
			t.Errorf("%s: create an object: %v", way, err)
		}
		if err := api.Delete(t.Context(), widgetsCRD, metav1.DeleteOptions{}); err != nil {
			t.Errorf("%s: delete the tenant's definition: %v", way, err)
		}
		tenant.waitForSize(t, true)
		if diff := cmp.Diff(large, tenant.get(t, "large")); diff != "" {
			t.Errorf("%s: the object of the platform's definition changed (-before +after):\n%s", way, diff)
		}
		if _, err := tenant.widgets.Get(t.Context(), "red", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("%s: an object of a deleted definition is there: %v", way, err)
		}
	}
}

func encoded(t *testing.T, v any) []byte {
	t.Helper()
	raw, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}
