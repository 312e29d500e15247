// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
)

// dynamicMaps returns the ConfigMaps in the namespace default, by full paths.
func (c *cluster) dynamicMaps(t *testing.T, tenant string) dynamic.ResourceInterface {
	t.Helper()
	return must(dynamic.NewForConfig(c.fullPaths(t, tenant).config))(t).Resource(corev1.SchemeGroupVersion.WithResource("configmaps")).Namespace("default")
}

// mapOf is a ConfigMap that names a tenant.
func mapOf(name, tenant string) *unstructured.Unstructured {
	object := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "data": map[string]any{"a": "1"}}}
	object.SetName(name)
	_ = unstructured.SetNestedField(object.Object, tenant, "metadata", "tenant")
	return object
}

// checkFields fails unless an object has the fields of full paths.
func checkFields(t *testing.T, object *unstructured.Unstructured, tenant, link string) {
	t.Helper()
	if got, _, _ := unstructured.NestedString(object.Object, "metadata", "tenant"); got != tenant || object.GetSelfLink() != link {
		t.Errorf("the object has the tenant %q and the link %q, want %q and %q", got, object.GetSelfLink(), tenant, link)
	}
}

// U5: what is read by a full path has metadata.tenant and metadata.selfLink, and can be written back, with strict validation too.
func (u *tenantURLs) haveFields(t *testing.T) {
	for tenant, admin := range map[string]*cluster{"solar": u.solar, "lunar": u.lunar} {
		t.Run(tenant, func(t *testing.T) { haveFields(t, tenant, admin) })
	}
}

func haveFields(t *testing.T, tenant string, admin *cluster) {
	maps := admin.dynamicMaps(t, tenant)
	const strict = metav1.FieldValidationStrict
	link := "/api/v1/tenants/" + tenant + "/namespaces/default/configmaps/fields"
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	follow := must(maps.Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=fields"}))(t)
	defer follow.Stop()

	object := must(maps.Create(ctx, mapOf("fields", tenant), metav1.CreateOptions{FieldValidation: strict}))(t)
	checkFields(t, object, tenant, link)
	event := (<-follow.ResultChan()).Object.(*unstructured.Unstructured)
	checkFields(t, event, tenant, link)
	object = must(maps.Get(ctx, "fields", metav1.GetOptions{}))(t)
	checkFields(t, object, tenant, link)
	_ = unstructured.SetNestedField(object.Object, "2", "data", "a")
	checkFields(t, must(maps.Update(ctx, object, metav1.UpdateOptions{FieldValidation: strict}))(t), tenant, link)
	applied := mapOf("fields", tenant)
	checkFields(t, must(maps.Apply(ctx, "fields", applied, metav1.ApplyOptions{FieldManager: "test", Force: true}))(t), tenant, link)
	for kind, patch := range map[types.PatchType]string{
		types.MergePatchType:          `{"metadata":{"tenant":"` + tenant + `","labels":{"a":"b"}}}`,
		types.StrategicMergePatchType: `{"metadata":{"labels":{"a":"c"},"tenant":"` + tenant + `"}}`,
		types.JSONPatchType:           `[{"op":"test","path":"/metadata/tenant","value":"` + tenant + `"},{"op":"add","path":"/data/b","value":"c"}]`,
	} {
		checkFields(t, must(maps.Patch(ctx, "fields", kind, []byte(patch), metav1.PatchOptions{FieldValidation: strict}))(t), tenant, link)
	}
	all := must(dynamic.NewForConfig(admin.fullPaths(t, tenant).config))(t)
	list := must(all.Resource(corev1.SchemeGroupVersion.WithResource("configmaps")).List(ctx, metav1.ListOptions{}))(t)
	if want := "/api/v1/tenants/" + tenant + "/configmaps"; list.GetSelfLink() != want {
		t.Errorf("the list is at %q, want %q", list.GetSelfLink(), want)
	}
	for _, item := range list.Items {
		checkFields(t, &item, tenant, "/api/v1/tenants/"+tenant+"/namespaces/"+item.GetNamespace()+"/configmaps/"+item.GetName())
	}
	checkFields(t, must(all.Resource(corev1.SchemeGroupVersion.WithResource("namespaces")).Get(ctx, "default", metav1.GetOptions{}))(t), tenant, "/api/v1/tenants/"+tenant+"/namespaces/default")
	table := must(admin.fullPaths(t, tenant).CoreV1().RESTClient().Get().AbsPath("/api/v1/namespaces/default/configmaps").
		SetHeader("Accept", "application/json;as=Table;g=meta.k8s.io;v=v1").DoRaw(ctx))(t)
	if !strings.Contains(string(table), `"kind":"Table"`) || !strings.Contains(string(table), `"selfLink":"`+link+`"`) {
		t.Errorf("the table is %s", table)
	}
	if out := must(admin.raw(t, "/api/v1/namespaces/default/configmaps/fields"))(t); strings.Contains(out, `"tenant"`) || strings.Contains(out, "selfLink") {
		t.Errorf("the short path answers %s", out)
	}
	if err := maps.Delete(ctx, "fields", metav1.DeleteOptions{}); err != nil {
		t.Error(err)
	}
}

// U5: an object that names another tenant is refused, and nothing is written.
func (u *tenantURLs) refuseOtherTenants(t *testing.T) {
	for tenant, admin := range map[string]*cluster{"solar": u.solar, "lunar": u.lunar} {
		maps := admin.dynamicMaps(t, tenant)
		must(maps.Create(t.Context(), mapOf("own", ""), metav1.CreateOptions{}))(t)
		refused := func(doing string, err error) {
			t.Helper()
			if !apierrors.IsBadRequest(err) || !strings.Contains(err.Error(), `metadata.tenant: Invalid value: "other": the URL is for the tenant `+tenant+`; remove the field`) {
				t.Errorf("%s: %s: got %v", tenant, doing, err)
			}
		}
		_, err := maps.Create(t.Context(), mapOf("new", "other"), metav1.CreateOptions{})
		refused("create", err)
		_, err = maps.Update(t.Context(), mapOf("own", "other"), metav1.UpdateOptions{})
		refused("update", err)
		_, err = maps.Apply(t.Context(), "new", mapOf("new", "other"), metav1.ApplyOptions{FieldManager: "test"})
		refused("apply", err)
		for kind, patch := range map[types.PatchType]string{
			types.MergePatchType:          `{"data":{"a":"2"},"metadata":{"tenant":"other"}}`,
			types.StrategicMergePatchType: `{"data":{"a":"2"},"metadata":{"tenan\u0074":"other"}}`,
			types.JSONPatchType:           `[{"op":"add","path":"/data/a","value":"2"},{"op":"add","path":"/metadata/tenant","value":"other"}]`,
		} {
			_, err := maps.Patch(t.Context(), "own", kind, []byte(patch), metav1.PatchOptions{})
			refused(string(kind), err)
		}
		body := `{"metadata":{"name":"new","tenant":"` + tenant + `"},"data":{"a":"` + strings.Repeat("x", 1<<19) + `"},"metadata":{"name":"new","tenant":"other"}}`
		err = admin.fullPaths(t, tenant).CoreV1().RESTClient().Post().AbsPath("/api/v1/namespaces/default/configmaps").SetHeader("Content-Type", "application/json").Body([]byte(body)).Do(t.Context()).Error()
		refused("a tenant that comes late", err)
		if _, err := maps.Get(t.Context(), "new", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("%s: an object of another tenant was created: %v", tenant, err)
		}
		if got, _, _ := unstructured.NestedString(must(maps.Get(t.Context(), "own", metav1.GetOptions{}))(t).Object, "data", "a"); got != "1" {
			t.Errorf("%s: an object of another tenant was written: %s", tenant, got)
		}
	}
}
