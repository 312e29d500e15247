// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	_ "embed" // for the schema
	"fmt"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"
)

// GroupVersion of the objects in this package.
var GroupVersion = schema.GroupVersion{Group: "access.berth.dev", Version: "v1alpha1"}

// TenantAccesses is the resource.
var TenantAccesses = schema.GroupResource{Group: "access.berth.dev", Resource: "tenantaccesses"}

// AddToScheme registers the types of this package, as they are served and as handlers have them, which is the same.
func AddToScheme(scheme *runtime.Scheme) error {
	for _, v := range []schema.GroupVersion{GroupVersion, {Group: GroupVersion.Group, Version: runtime.APIVersionInternal}} {
		scheme.AddKnownTypes(v, &TenantAccess{}, &TenantAccessList{})
	}
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return scheme.SetVersionPriority(GroupVersion)
}

//go:embed access.berth.dev_tenantaccesses.yaml
var tenantAccess []byte

// TenantAccessSchema returns the schema of a TenantAccess.
func TenantAccessSchema() (*apiextensionsv1.JSONSchemaProps, error) {
	definition := &apiextensionsv1.CustomResourceDefinition{}
	if err := yaml.UnmarshalStrict(tenantAccess, definition); err != nil {
		return nil, fmt.Errorf("read the schema of TenantAccess: %w", err)
	}
	return definition.Spec.Versions[0].Schema.OpenAPIV3Schema, nil
}

// OpenAPIModelName returns the name of the type's schema.
func (TenantAccess) OpenAPIModelName() string { return "dev.berth.access.v1alpha1.TenantAccess" }

// OpenAPIModelName returns the name of the type's schema.
func (TenantAccessList) OpenAPIModelName() string {
	return "dev.berth.access.v1alpha1.TenantAccessList"
}
