// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package testcrd makes CustomResourceDefinitions for tests.
package testcrd

import (
	"fmt"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// New returns a definition as a tenant may make it, with one version, as if the API server served it already.
func New(group, kind string, schema *apiextensionsv1.JSONSchemaProps) *apiextensionsv1.CustomResourceDefinition {
	plural := strings.ToLower(kind) + "s"
	names := apiextensionsv1.CustomResourceDefinitionNames{Plural: plural, Kind: kind, ListKind: kind + "List"}
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: plural + "." + group},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: group, Scope: apiextensionsv1.NamespaceScoped, Names: names,
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: "v1", Served: true, Storage: true, Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: schema}}},
		},
		Status: apiextensionsv1.CustomResourceDefinitionStatus{
			AcceptedNames: names,
			Conditions:    []apiextensionsv1.CustomResourceDefinitionCondition{{Type: apiextensionsv1.Established, Status: apiextensionsv1.ConditionTrue}},
		},
	}
}

// WithVersions gives a definition n versions, and returns it.
func WithVersions(c *apiextensionsv1.CustomResourceDefinition, n int) *apiextensionsv1.CustomResourceDefinition {
	for i := 1; i < n; i++ {
		v := *c.Spec.Versions[0].DeepCopy()
		v.Name, v.Storage = fmt.Sprintf("v%d", i+1), false
		c.Spec.Versions = append(c.Spec.Versions, v)
	}
	return c
}
