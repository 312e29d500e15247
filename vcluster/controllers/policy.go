// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apiextensionsscheme "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/scheme"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/cel/openapi/resolver"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/openapi"
	"k8s.io/client-go/rest"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"k8s.io/kubernetes/cmd/kube-controller-manager/app"
	"k8s.io/kubernetes/cmd/kube-controller-manager/names"
	"k8s.io/kubernetes/pkg/controller/validatingadmissionpolicystatus"
	generatedopenapi "k8s.io/kubernetes/pkg/generated/openapi"

	"github.com/berth-dev/berth/vcluster/controllers/views"
)

// policyWorkers is how many policies are checked at once, each of which may take a processor for a second.
const policyWorkers = 1

// builtinSchemas resolves the schemas of built-in types. Upstream's controller
// makes them anew, which takes as much memory as all the objects of a space.
var builtinSchemas = sync.OnceValue(func() *resolver.DefinitionsSchemaResolver {
	return resolver.NewDefinitionsSchemaResolver(generatedopenapi.GetOpenAPIDefinitions, scheme.Scheme, apiextensionsscheme.Scheme)
})

// policyController checks the types of validating admission policies. It is
// upstream's, but for the schemas.
type policyController struct {
	*validatingadmissionpolicystatus.Controller
}

func newPolicyController(c app.ControllerContext, pace *views.Pace) (app.Controller, error) {
	client, err := c.NewClient(names.ValidatingAdmissionPolicyStatusController)
	if err != nil {
		return nil, err
	}
	checker := &validating.TypeChecker{
		SchemaResolver: builtinSchemas().Combine(groupSchemas{client.Discovery().RESTClient()}),
		RestMapper:     c.RESTMapper,
	}
	controller, err := validatingadmissionpolicystatus.NewController(
		views.CheckedPolicies{ValidatingAdmissionPolicyInformer: c.InformerFactory.Admissionregistration().V1().ValidatingAdmissionPolicies(), Pace: pace},
		client.AdmissionregistrationV1().ValidatingAdmissionPolicies(), checker)
	if err != nil {
		return nil, fmt.Errorf("build controller of policies: %w", err)
	}
	return &policyController{controller}, nil
}

func (*policyController) Name() string { return names.ValidatingAdmissionPolicyStatusController }

func (p *policyController) Run(ctx context.Context) { p.Controller.Run(ctx, policyWorkers) }

// groupSchemas resolves a kind with the OpenAPI document of its API group version. Upstream's resolver first asks for the list of all
// documents, for which the server has to make each of them.
type groupSchemas struct{ client rest.Interface }

// ResolveSchema implements [resolver.SchemaResolver].
func (s groupSchemas) ResolveSchema(kind schema.GroupVersionKind) (*spec.Schema, error) {
	only := groupDocument{client: s.client, path: "apis/" + kind.GroupVersion().String()}
	if kind.Group == corev1.GroupName {
		only.path = "api/" + kind.Version
	}
	return (&resolver.ClientDiscoveryResolver{Discovery: only}).ResolveSchema(kind)
}

// groupDocument is discovery of a single OpenAPI document.
type groupDocument struct {
	discovery.DiscoveryInterface // nil: nothing else is asked for

	client rest.Interface
	path   string // under /openapi/v3
}

// OpenAPIV3 implements [discovery.OpenAPIV3SchemaInterface].
func (d groupDocument) OpenAPIV3() openapi.Client { return d }

// Paths implements [openapi.Client].
func (d groupDocument) Paths() (map[string]openapi.GroupVersion, error) {
	return map[string]openapi.GroupVersion{d.path: d}, nil
}

// Schema implements [openapi.GroupVersion].
func (d groupDocument) Schema(contentType string) ([]byte, error) {
	document, err := d.client.Get().AbsPath(d.ServerRelativeURL()).SetHeader("Accept", contentType).
		Do(context.TODO()).Raw() //nolint:forbidigo // upstream's resolver passes no context
	if apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("%s: %w", d.path, resolver.ErrSchemaNotFound)
	}
	return document, err
}

// ServerRelativeURL implements [openapi.GroupVersion].
func (d groupDocument) ServerRelativeURL() string { return "/openapi/v3/" + d.path }
