// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package custom has the CustomResourceDefinitions that measures create, and their objects.
package custom

import (
	"fmt"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// Group is that of the definitions, and version is theirs.
	Group, version = "bench.example.com", "v1"
	// Parts and fields make a schema of 13 KiB, about half of the median of cert-manager's. Parts is how many the specification has.
	Parts, fields = 8, 10
)

// NewDefinition returns a definition with a schema as operators have them: objects in each other, whose fields have descriptions.
func NewDefinition(i int) *apiextensionsv1.CustomResourceDefinition {
	spec := apiextensionsv1.JSONSchemaProps{Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{}}
	for part := range Parts {
		object := apiextensionsv1.JSONSchemaProps{Type: "object", Description: "A part of the specification.", Properties: map[string]apiextensionsv1.JSONSchemaProps{}}
		for field := range fields {
			object.Properties[fmt.Sprint("field", field)] = apiextensionsv1.JSONSchemaProps{
				Type: "string", Pattern: "^[a-z]*$", Description: fmt.Sprintf("The field %d of the part %d says something that takes a sentence to explain.", field, part),
			}
		}
		spec.Properties[fmt.Sprint("part", part)] = object
	}
	plural := fmt.Sprintf("things%d", i)
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: plural + "." + Group},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: Group, Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: plural, Singular: fmt.Sprintf("thing%d", i), Kind: fmt.Sprintf("Thing%d", i), ListKind: fmt.Sprintf("Thing%dList", i)},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: version, Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
					Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{"spec": spec},
				}},
			}},
		},
	}
}

// NewDefinitionWithStatus returns a definition whose objects have a status.
func NewDefinitionWithStatus() *apiextensionsv1.CustomResourceDefinition {
	crd := NewDefinition(0)
	served := &crd.Spec.Versions[0]
	served.Subresources = &apiextensionsv1.CustomResourceSubresources{Status: &apiextensionsv1.CustomResourceSubresourceStatus{}}
	served.Schema.OpenAPIV3Schema.Properties["status"] = apiextensionsv1.JSONSchemaProps{
		Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{"phase": {Type: "string"}},
	}
	return crd
}
