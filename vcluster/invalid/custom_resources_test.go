// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package invalid_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	listers "k8s.io/apiextensions-apiserver/pkg/client/listers/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/client-go/tools/cache"

	"github.com/berth-dev/berth/internal/testrace"
	"github.com/berth-dev/berth/vcluster/invalid"
)

func definitionOf(revision string, items apiextensionsv1.JSONSchemaProps) *apiextensionsv1.CustomResourceDefinition {
	root := apiextensionsv1.JSONSchemaProps{Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{
		"list": {Type: "array", Items: &apiextensionsv1.JSONSchemaPropsOrArray{Schema: &items}},
	}}
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "things.example.com", UID: "uid", ResourceVersion: revision},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{Versions: []apiextensionsv1.CustomResourceDefinitionVersion{
			{Name: "v1", Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &root}},
		}},
	}
}

func attributesOf(values ...any) admission.Attributes { return updateOf(nil, values) }

func updateOf(old, values []any) admission.Attributes {
	u := &unstructured.Unstructured{Object: map[string]any{"list": values}}
	var stored runtime.Object
	if old != nil {
		stored = &unstructured.Unstructured{Object: map[string]any{"list": old}}
	}
	return admission.NewAttributesRecord(u, stored, schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Thing"}, "default", "thing",
		schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "things"}, "", admission.Create, nil, false, nil)
}

func repeated(value any, n int) []any {
	values := make([]any, n)
	for i := range values {
		values[i] = value
	}
	return values
}

func TestHostileDefinitionsOfARequestsBeginningCount(t *testing.T) {
	text, anything := apiextensionsv1.JSONSchemaProps{Type: "string"}, apiextensionsv1.JSONSchemaProps{Type: "integer"}
	stored := cache.NewIndexer(cache.MetaNamespaceKeyFunc, nil)
	d := &invalid.CustomResources{Lister: listers.NewCustomResourceDefinitionLister(stored)}
	begin := func() *http.Request {
		r := httptest.NewRequest(http.MethodPost, "/apis/example.com/v1/namespaces/default/things", http.NoBody)
		return r.WithContext(d.Begin(r))
	}
	a := attributesOf(repeated(int64(1), 1000)...)
	if err := d.Check(begin().Context(), a); err != nil {
		t.Errorf("without a definition: %v", err)
	}
	if err := stored.Add(definitionOf("1", text)); err != nil {
		t.Fatal(err)
	}
	began := begin()
	if err := stored.Update(definitionOf("2", anything)); err != nil {
		t.Fatal(err)
	}
	if err := d.Check(began.Context(), a); !apierrors.IsInvalid(err) {
		t.Errorf("by the definition that there was when the request began: %v", err)
	}
	if err := d.Check(begin().Context(), a); err != nil {
		t.Errorf("by the new definition: %v", err)
	}
}

func TestHostileSchemasAreValidatedOnlySoFar(t *testing.T) {
	testrace.SkipAlone(t)
	text := apiextensionsv1.JSONSchemaProps{Type: "string"}
	one := 1.0
	alternatives := apiextensionsv1.JSONSchemaProps{Type: "integer", AnyOf: []apiextensionsv1.JSONSchemaProps{{Maximum: &one}, {Minimum: &one}}}
	nested := apiextensionsv1.JSONSchemaProps{Type: "array", Items: &apiextensionsv1.JSONSchemaPropsOrArray{Schema: &text}}
	required := apiextensionsv1.JSONSchemaProps{Type: "object"}
	for i := range 1900 {
		required.Required = append(required.Required, fmt.Sprintf("field-%d", i))
	}
	ruled := apiextensionsv1.JSONSchemaProps{Type: "integer", XValidations: apiextensionsv1.ValidationRules{{Rule: "self < 0"}}}
	many := apiextensionsv1.JSONSchemaProps{Type: "integer"}
	for range 500 {
		many.XValidations = append(many.XValidations, apiextensionsv1.ValidationRule{Rule: "false", MessageExpression: "'x'"})
	}
	nestedMany := apiextensionsv1.JSONSchemaProps{Type: "array", Items: &apiextensionsv1.JSONSchemaPropsOrArray{Schema: &many}}
	for name, c := range map[string]struct {
		items  apiextensionsv1.JSONSchemaProps
		values []any
		code   int32
		causes int
	}{
		"valid":                    {text, repeated("a", 100_000), 0, 0},
		"valid by an alternative":  {alternatives, repeated(int64(2), 100_000), 0, 0},
		"few errors":               {text, append(repeated("a", 100_000), repeated(int64(1), 100)...), 0, 0},
		"many errors":              {text, repeated(int64(1), 1000), 422, 101},
		"errors in lists of lists": {nested, repeated(repeated(int64(1), 1000), 100), 422, 101},
		"required fields":          {required, repeated(map[string]any{}, 1000), 422, 101},
		"a few rules":              {ruled, repeated(int64(1), 10_000), 0, 0},
		"rules":                    {ruled, repeated(int64(1), 100_000), 403, 0},
		"rules beyond all numbers": {nestedMany, repeated(repeated(int64(1), 100), 1000), 403, 0},
	} {
		stored := cache.NewIndexer(cache.MetaNamespaceKeyFunc, nil)
		if err := stored.Add(definitionOf("1", c.items)); err != nil {
			t.Fatal(err)
		}
		d := &invalid.CustomResources{Lister: listers.NewCustomResourceDefinitionLister(stored)}
		err := d.Check(t.Context(), attributesOf(c.values...))
		status, _ := err.(apierrors.APIStatus)
		if c.code == 0 || status == nil {
			if err != nil || c.code != 0 {
				t.Errorf("%s: %.300v", name, err)
			}
			continue
		}
		causes := 0
		if details := status.Status().Details; details != nil {
			causes = len(details.Causes)
		}
		if status.Status().Code != c.code || causes != c.causes {
			t.Errorf("%s: %d, %d causes: %.300v", name, status.Status().Code, causes, err)
		}
	}
}

func TestObjectsOfManyErrorsCanBeUpdatedIfTheyHadThem(t *testing.T) {
	stored := cache.NewIndexer(cache.MetaNamespaceKeyFunc, nil)
	if err := stored.Add(definitionOf("1", apiextensionsv1.JSONSchemaProps{Type: "string"})); err != nil {
		t.Fatal(err)
	}
	d := &invalid.CustomResources{Lister: listers.NewCustomResourceDefinitionLister(stored)}
	if err := d.Check(t.Context(), updateOf(repeated(int64(1), 1000), repeated(int64(1), 1000))); err != nil {
		t.Errorf("as many errors: %v", err)
	}
	for name, n := range map[string]int{"more errors": 1001, "too many to be counted": 10_000} {
		if err := d.Check(t.Context(), updateOf(repeated(int64(1), n-1), repeated(int64(1), n))); !apierrors.IsInvalid(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
