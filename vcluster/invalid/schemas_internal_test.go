// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package invalid

import (
	"strconv"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// L3: of a definition that its tenant changes again and again, some hundred megabytes of schemas were kept.
func TestHostileSchemasAreNotAllKept(t *testing.T) {
	const properties = 9000
	schema := apiextensionsv1.JSONSchemaProps{Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{}}
	for i := range properties {
		schema.Properties[strconv.Itoa(i)] = apiextensionsv1.JSONSchemaProps{Type: "string"}
	}
	v := &apiextensionsv1.CustomResourceDefinitionVersion{Name: "v1", Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &schema}}
	d := &CustomResources{}
	for i := range 20 {
		of := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{UID: "a", ResourceVersion: strconv.Itoa(i)}}
		if s := d.schemaOf(of, v); s.parts != properties+1 || s != d.schemaOf(of, v) {
			t.Fatalf("a schema has %d parts, and is kept: %v", s.parts, s == d.schemaOf(of, v))
		}
		kept := 0
		for _, s := range d.schemas {
			kept += s.parts
		}
		if kept != d.parts || kept > maxParts {
			t.Errorf("after %d changes %d parts are kept, and %d counted", i, kept, d.parts)
		}
	}
}
