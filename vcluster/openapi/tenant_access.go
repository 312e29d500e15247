// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package openapi

import (
	"fmt"
	"maps"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kube-openapi/pkg/common"
	openapiutil "k8s.io/kube-openapi/pkg/util"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/berth-dev/berth/api/space/v1alpha1"
)

// ofTenants returns the definitions of the group access.berth.dev, with references that begin with prefix. Their schemas are generated as
// those of custom resources are. It panics if one isn't valid, which is the same in each process.
func ofTenants(prefix string) map[string]common.OpenAPIDefinition {
	all := ofTenant(prefix, &v1alpha1.TenantAccess{}, &v1alpha1.TenantAccessList{}, v1alpha1.TenantAccessSchema,
		"TenantAccessList is a list of what a space gives to users of other tenants.")
	maps.Copy(all, ofTenant(prefix, &v1alpha1.CRDPolicy{}, &v1alpha1.CRDPolicyList{}, v1alpha1.CRDPolicySchema, "CRDPolicyList is a list of policies."))
	maps.Copy(all, ofTenant(prefix, &v1alpha1.CRDMatch{}, &v1alpha1.CRDMatchList{}, v1alpha1.CRDMatchSchema, "CRDMatchList is a list of matches."))
	return all
}

func ofTenant(
	prefix string, of, listOf any, schema func() (*apiextensionsv1.JSONSchemaProps, error), listDescription string,
) map[string]common.OpenAPIDefinition {
	object, err := toOpenAPI(schema)
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
	name, ref := refer(of)
	listName, _ := refer(listOf)
	object.Properties["metadata"] = metadataRef
	list := spec.Schema{SchemaProps: spec.SchemaProps{
		Description: listDescription, Type: []string{"object"}, Required: []string{"items"},
		Properties: map[string]spec.Schema{
			"apiVersion": object.Properties["apiVersion"], "kind": object.Properties["kind"], "metadata": listMetadataRef,
			"items": {SchemaProps: spec.SchemaProps{Type: []string{"array"}, Items: &spec.SchemaOrArray{Schema: &ref}}},
		},
	}}
	return map[string]common.OpenAPIDefinition{
		name: {Schema: *object, Dependencies: []string{metadata}}, listName: {Schema: list, Dependencies: []string{listMetadata, name}},
	}
}

func toOpenAPI(schema func() (*apiextensionsv1.JSONSchemaProps, error)) (*spec.Schema, error) {
	versioned, err := schema()
	if err != nil {
		return nil, err
	}
	props := &apiextensions.JSONSchemaProps{}
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(versioned, props, nil); err != nil {
		return nil, fmt.Errorf("convert the schema of an object in spaces: %w", err)
	}
	structural, err := structuralschema.NewStructural(props)
	if err != nil {
		return nil, fmt.Errorf("read the schema of an object in spaces: %w", err)
	}
	return structural.ToKubeOpenAPI(), nil
}
