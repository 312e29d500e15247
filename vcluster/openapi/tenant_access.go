// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package openapi

import (
	"fmt"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kube-openapi/pkg/common"
	openapiutil "k8s.io/kube-openapi/pkg/util"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/berth-dev/berth/api/space/v1alpha1"
)

// tenantAccess returns the definitions of TenantAccess, with references that begin with prefix. Its schema is generated as that of custom
// resources is. It panics if that isn't valid, which is the same in each process.
func tenantAccess(prefix string) map[string]common.OpenAPIDefinition {
	object, err := tenantAccessSchema()
	if err != nil {
		panic(err)
	}
	refer := func(of any) (name string, schema spec.Schema) {
		name = openapiutil.GetCanonicalTypeName(of)
		defName, _ := namer().GetDefinitionName(name)
		return name, spec.Schema{SchemaProps: spec.SchemaProps{Ref: spec.MustCreateRef(prefix + common.EscapeJsonPointer(defName))}}
	}
	metadata, metadataRef := refer(&metav1.ObjectMeta{})
	listMetadata, listMetadataRef := refer(&metav1.ListMeta{})
	name, ref := refer(&v1alpha1.TenantAccess{})
	listName, _ := refer(&v1alpha1.TenantAccessList{})
	object.Properties["metadata"] = metadataRef
	list := spec.Schema{SchemaProps: spec.SchemaProps{
		Description: "TenantAccessList is a list of what a space gives to users of other tenants.", Type: []string{"object"}, Required: []string{"items"},
		Properties: map[string]spec.Schema{
			"apiVersion": object.Properties["apiVersion"], "kind": object.Properties["kind"], "metadata": listMetadataRef,
			"items": {SchemaProps: spec.SchemaProps{Type: []string{"array"}, Items: &spec.SchemaOrArray{Schema: &ref}}},
		},
	}}
	return map[string]common.OpenAPIDefinition{
		name: {Schema: *object, Dependencies: []string{metadata}}, listName: {Schema: list, Dependencies: []string{listMetadata, name}},
	}
}

func tenantAccessSchema() (*spec.Schema, error) {
	versioned, err := v1alpha1.TenantAccessSchema()
	if err != nil {
		return nil, err
	}
	props := &apiextensions.JSONSchemaProps{}
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(versioned, props, nil); err != nil {
		return nil, fmt.Errorf("convert the schema of TenantAccess: %w", err)
	}
	structural, err := structuralschema.NewStructural(props)
	if err != nil {
		return nil, fmt.Errorf("read the schema of TenantAccess: %w", err)
	}
	return structural.ToKubeOpenAPI(), nil
}
