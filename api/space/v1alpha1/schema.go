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

// CRDPolicies is the resource.
var CRDPolicies = schema.GroupResource{Group: "access.berth.dev", Resource: "crdpolicies"}

// CRDMatches is the resource.
var CRDMatches = schema.GroupResource{Group: "access.berth.dev", Resource: "crdmatches"}

// AddToScheme registers the types of this package, as they are served and as handlers have them, which is the same.
func AddToScheme(scheme *runtime.Scheme) error {
	for _, v := range []schema.GroupVersion{GroupVersion, {Group: GroupVersion.Group, Version: runtime.APIVersionInternal}} {
		scheme.AddKnownTypes(v, &TenantAccess{}, &TenantAccessList{}, &CRDPolicy{}, &CRDPolicyList{}, &CRDMatch{}, &CRDMatchList{})
	}
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return scheme.SetVersionPriority(GroupVersion)
}

//go:embed access.berth.dev_tenantaccesses.yaml
var tenantAccess []byte

//go:embed access.berth.dev_crdpolicies.yaml
var crdPolicy []byte

//go:embed access.berth.dev_crdmatches.yaml
var crdMatch []byte

// TenantAccessSchema returns the schema of a TenantAccess.
func TenantAccessSchema() (*apiextensionsv1.JSONSchemaProps, error) { return schemaOf(tenantAccess) }

// CRDPolicySchema returns the schema of a CRDPolicy.
func CRDPolicySchema() (*apiextensionsv1.JSONSchemaProps, error) { return schemaOf(crdPolicy) }

// CRDMatchSchema returns the schema of a CRDMatch.
func CRDMatchSchema() (*apiextensionsv1.JSONSchemaProps, error) { return schemaOf(crdMatch) }

func schemaOf(text []byte) (*apiextensionsv1.JSONSchemaProps, error) {
	definition := &apiextensionsv1.CustomResourceDefinition{}
	if err := yaml.UnmarshalStrict(text, definition); err != nil {
		return nil, fmt.Errorf("read the schema of an object in spaces: %w", err)
	}
	return definition.Spec.Versions[0].Schema.OpenAPIV3Schema, nil
}

// OpenAPIModelName returns the name of the type's schema.
func (TenantAccess) OpenAPIModelName() string { return "dev.berth.access.v1alpha1.TenantAccess" }

// OpenAPIModelName returns the name of the type's schema.
func (TenantAccessList) OpenAPIModelName() string {
	return "dev.berth.access.v1alpha1.TenantAccessList"
}

// OpenAPIModelName returns the name of the type's schema.
func (CRDPolicy) OpenAPIModelName() string { return "dev.berth.access.v1alpha1.CRDPolicy" }

// OpenAPIModelName returns the name of the type's schema.
func (CRDPolicyList) OpenAPIModelName() string { return "dev.berth.access.v1alpha1.CRDPolicyList" }

// OpenAPIModelName returns the name of the type's schema.
func (CRDMatch) OpenAPIModelName() string { return "dev.berth.access.v1alpha1.CRDMatch" }

// OpenAPIModelName returns the name of the type's schema.
func (CRDMatchList) OpenAPIModelName() string { return "dev.berth.access.v1alpha1.CRDMatchList" }
