// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"fmt"
	"sync"

	apiextensionsscheme "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/scheme"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/cel/openapi/resolver"
	"k8s.io/client-go/kubernetes/scheme"
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
		SchemaResolver: builtinSchemas().Combine(&resolver.ClientDiscoveryResolver{Discovery: client.Discovery()}),
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
