// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package requests

import (
	"encoding/json"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"
)

// L3: what an encoder adds to deep objects is estimated, and never too low.
func TestHostileDeepAnswersAreEstimatedFromAbove(t *testing.T) {
	deep := func(n int) []byte {
		return []byte(strings.Repeat(`{"a":[`, n) + `1,"x"` + strings.Repeat(`]}`, n))
	}
	texts := strings.Repeat(`{"a":[`, 200) + `"` + strings.Repeat(`a `, 1000) + strings.Repeat(`a\n`, 1000) + `"` + strings.Repeat(`]}`, 200)
	custom := func(document []byte) map[string]any {
		var v any
		if err := json.Unmarshal(document, &v); err != nil {
			t.Fatal(err)
		}
		return map[string]any{"kind": "One", "apiVersion": "example.com/v1", "spec": v}
	}
	schema := apiextensionsv1.JSONSchemaProps{}
	for range 100 {
		schema = apiextensionsv1.JSONSchemaProps{Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{"a": schema, "b": {Type: "string"}}}
	}
	fields := metav1.ObjectMeta{ManagedFields: []metav1.ManagedFieldsEntry{{FieldsV1: metav1.NewFieldsV1(string(deep(300)))}}}
	for name, object := range map[string]any{
		"custom resource":     &unstructured.Unstructured{Object: custom(deep(300))},
		"texts":               &unstructured.Unstructured{Object: custom([]byte(texts))},
		"schema":              schema,
		"default of a schema": &apiextensionsv1.JSON{Raw: deep(300)},
		"revision":            &appsv1.ControllerRevision{Data: runtime.RawExtension{Raw: deep(300)}},
		"managed fields":      &corev1.ConfigMap{ObjectMeta: fields},
	} {
		plain, err := json.Marshal(object)
		if err != nil {
			t.Fatal(err)
		}
		pretty, err := json.MarshalIndent(object, "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		asYAML, err := yaml.JSONToYAML(plain)
		if err != nil {
			t.Fatal(err)
		}
		estimate := indentationOf(object)
		for form, got := range map[string][]byte{"JSON": pretty, "YAML": asYAML} {
			if added := int64(len(got)) - 2*int64(len(plain)); added > estimate {
				t.Errorf("%s as %s: %d bytes are added, estimated to be %d", name, form, added, estimate)
			}
		}
		if added := int64(len(pretty) + len(asYAML) + 20_000); estimate > 4*added {
			t.Errorf("%s: %d bytes are estimated, JSON has %d, YAML %d", name, estimate, len(pretty), len(asYAML))
		}
	}
}

func TestUsualAnswersHaveLittleIndentation(t *testing.T) {
	m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "one"}, Data: map[string]string{"x": strings.Repeat("some text\n", 1000)}}
	if n := indentationOf(m); n > 5*10_000 {
		t.Errorf("%d bytes for 10,000", n)
	}
	if n := Streamed.Indentation(m); n != 0 {
		t.Errorf("JSON without spaces has %d", n)
	}
}
