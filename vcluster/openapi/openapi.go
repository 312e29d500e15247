// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package openapi

import (
	"maps"
	"sync"

	apiextensionsapiserver "k8s.io/apiextensions-apiserver/pkg/apiserver"
	"k8s.io/apimachinery/pkg/runtime"
	openapinamer "k8s.io/apiserver/pkg/endpoints/openapi"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/util/openapi"
	aggregatorscheme "k8s.io/kube-aggregator/pkg/apiserver/scheme"
	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/spec3"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	generatedopenapi "k8s.io/kubernetes/pkg/generated/openapi"

	"github.com/berth-dev/berth/api/space/v1alpha1"
)

// The schemas of the built-in types are the same in every space and take six
// megabytes, so they are made once for the process. Upstream's builders write
// to them: into a definition's extensions they merge what the namer adds, and
// delete from them. Definitions without extensions they leave alone, and copy.
// So the shared definitions have none, and the namer adds them all.

// definitions are schemas whose references are of one form, and their
// extensions, by Go name.
type definitions struct {
	all        map[string]common.OpenAPIDefinition
	extensions map[string]spec.Extensions
}

var definitionsV2 = sync.OnceValue(func() definitions { return newDefinitions("#/definitions/", true) })

var definitionsV3 = sync.OnceValue(func() definitions { return newDefinitions("#/components/schemas/", false) })

// builtinSchemes have the types of the built-in APIs.
var builtinSchemes = sync.OnceValue(func() []*runtime.Scheme {
	own := runtime.NewScheme()
	own.AddKnownTypes(v1alpha1.GroupVersion, &v1alpha1.TenantAccess{}, &v1alpha1.TenantAccessList{}, &v1alpha1.CRDPolicy{}, &v1alpha1.CRDPolicyList{},
		&v1alpha1.CRDMatch{}, &v1alpha1.CRDMatchList{})
	return []*runtime.Scheme{legacyscheme.Scheme, apiextensionsapiserver.Scheme, aggregatorscheme.Scheme, own}
})

// namer returns what names schemas. It does not change.
var namer = sync.OnceValue(func() *openapinamer.DefinitionNamer { return openapinamer.NewDefinitionNamer(builtinSchemes()...) })

// newDefinitions makes the definitions whose references begin with prefix. Some
// types have an extension that holds another schema, for version 2; keepV2 keeps
// it, which is safe for a type to which the namer then adds nothing.
func newDefinitions(prefix string, keepV2 bool) definitions {
	names := namer()
	get := openapi.GetOpenAPIDefinitionsWithoutDisabledFeatures(generatedopenapi.GetOpenAPIDefinitions)
	d := definitions{
		all: get(func(name string) spec.Ref {
			defName, _ := names.GetDefinitionName(name)
			return spec.MustCreateRef(prefix + common.EscapeJsonPointer(defName))
		}),
		extensions: map[string]spec.Extensions{},
	}
	maps.Copy(d.all, ofTenants(prefix))
	for name, def := range d.all {
		own := def.Schema.Extensions
		v2, hasV2 := own[common.ExtensionV2Schema]
		def.Schema.Extensions = nil
		if hasV2 && keepV2 {
			def.Schema.Extensions = spec.Extensions{common.ExtensionV2Schema: v2}
			d.all[name] = def
			continue
		}
		d.all[name] = def
		_, added := names.GetDefinitionName(name)
		merged := spec.Extensions{}
		maps.Copy(merged, own)
		maps.Copy(merged, added)
		delete(merged, common.ExtensionV2Schema)
		if len(merged) > 0 {
			d.extensions[name] = merged
		}
	}
	return d
}

// get is a [common.GetOpenAPIDefinitions]; the callback is known.
func (d definitions) get(common.ReferenceCallback) map[string]common.OpenAPIDefinition { return d.all }

// name returns a type's name in the document, and all its extensions.
func (d definitions) name(name string) (string, spec.Extensions) {
	defName, _ := namer().GetDefinitionName(name)
	return defName, d.extensions[name]
}

// Describe sets what a server's OpenAPI documents are made from.
func Describe(c *genericapiserver.Config) {
	v2, v3 := definitionsV2(), definitionsV3()

	c.OpenAPIConfig = genericapiserver.DefaultOpenAPIConfig(v2.get, namer())
	c.OpenAPIConfig.GetDefinitionName = v2.name
	c.OpenAPIConfig.Info.Title = "Kubernetes"

	c.OpenAPIV3Config = genericapiserver.DefaultOpenAPIV3Config(v3.get, namer())
	c.OpenAPIV3Config.GetDefinitionName = v3.name
	c.OpenAPIV3Config.Info.Title = "Kubernetes"
}

// DescribeTokens adds to the documents what upstream adds when it sets up
// authentication by token, which is each space's own.
func DescribeTokens(c *genericapiserver.Config) {
	const kind, name, in, about = "apiKey", "authorization", "header", "Bearer Token authentication"
	c.OpenAPIConfig.SecurityDefinitions = &spec.SecurityDefinitions{"BearerToken": &spec.SecurityScheme{
		SecuritySchemeProps: spec.SecuritySchemeProps{Type: kind, Name: name, In: in, Description: about},
	}}
	c.OpenAPIV3Config.SecuritySchemes = spec3.SecuritySchemes{"BearerToken": &spec3.SecurityScheme{
		SecuritySchemeProps: spec3.SecuritySchemeProps{Type: kind, Name: name, In: in, Description: about},
	}}
}
