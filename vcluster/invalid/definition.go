// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package invalid

import (
	"context"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	"k8s.io/apiextensions-apiserver/pkg/apiserver"
	"k8s.io/apiextensions-apiserver/pkg/registry/customresourcedefinition"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/registry/rest"
)

// CheckDefinition refuses a CustomResourceDefinition with more errors than are listed: upstream keeps the registry of these to
// itself. Rules are left out. They take long to compile, and their number is bounded.
func CheckDefinition(ctx context.Context, a admission.Attributes) error {
	d, ok := a.GetObject().(*apiextensions.CustomResourceDefinition)
	if !ok {
		return nil
	}
	errs := Cut(ofDefinition(ctx, withoutRules(d), a))
	if len(errs) <= MaxErrors {
		return nil
	}
	return apierrors.NewInvalid(a.GetKind().GroupKind(), d.Name, errs)
}

func ofDefinition(ctx context.Context, d *apiextensions.CustomResourceDefinition, a admission.Attributes) field.ErrorList {
	var update rest.RESTUpdateStrategy = customresourcedefinition.NewStrategy(apiserver.Scheme)
	if a.GetSubresource() != "" {
		update = customresourcedefinition.NewStatusStrategy(apiserver.Scheme)
	}
	if old, ok := a.GetOldObject().(*apiextensions.CustomResourceDefinition); ok && a.GetOperation() == admission.Update {
		old = withoutRules(old)
		update.PrepareForUpdate(ctx, d, old)
		return update.ValidateUpdate(ctx, d, old)
	}
	create := customresourcedefinition.NewStrategy(apiserver.Scheme)
	create.PrepareForCreate(ctx, d)
	return create.Validate(ctx, d)
}

func withoutRules(d *apiextensions.CustomResourceDefinition) *apiextensions.CustomResourceDefinition {
	d = d.DeepCopy()
	if d.Spec.Validation != nil {
		dropRules(d.Spec.Validation.OpenAPIV3Schema)
	}
	for i := range d.Spec.Versions {
		if s := d.Spec.Versions[i].Schema; s != nil {
			dropRules(s.OpenAPIV3Schema)
		}
	}
	return d
}

func dropRules(s *apiextensions.JSONSchemaProps) {
	if s == nil {
		return
	}
	s.XValidations = nil
	for _, m := range []map[string]apiextensions.JSONSchemaProps{s.Properties, s.PatternProperties, s.Definitions} {
		for name, p := range m {
			dropRules(&p)
			m[name] = p
		}
	}
	for _, list := range [][]apiextensions.JSONSchemaProps{s.AllOf, s.AnyOf, s.OneOf} {
		for i := range list {
			dropRules(&list[i])
		}
	}
	dropRules(s.Not)
	if s.Items != nil {
		dropRules(s.Items.Schema)
		for i := range s.Items.JSONSchemas {
			dropRules(&s.Items.JSONSchemas[i])
		}
	}
	for _, other := range []*apiextensions.JSONSchemaPropsOrBool{s.AdditionalProperties, s.AdditionalItems} {
		if other != nil {
			dropRules(other.Schema)
		}
	}
	for name, p := range s.Dependencies {
		dropRules(p.Schema)
		s.Dependencies[name] = p
	}
}
