// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package syncpolicy

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structural "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/util/json"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	strictjson "sigs.k8s.io/json"

	"github.com/berth-dev/berth/api/crds"
	"github.com/berth-dev/berth/api/v1alpha1"
)

// schema checks ResourceSyncs of files as the API server of the host checks those that are created there. Policies have their paths and
// rules in expressions, so an unchecked one would be a policy that says something else.
type schema struct {
	values validation.SchemaValidator
	lists  *structural.Structural
	rules  *cel.Validator
}

// newSchema returns the schema of the definition of ResourceSyncs.
func newSchema() (*schema, error) {
	all, err := crds.All()
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(all, func(crd *apiextensionsv1.CustomResourceDefinition) bool { return crd.Spec.Names.Kind == "ResourceSync" })
	if i < 0 {
		return nil, errors.New("find the definition of ResourceSyncs")
	}
	var props apiextensions.JSONSchemaProps
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(all[i].Spec.Versions[0].Schema.OpenAPIV3Schema, &props, nil); err != nil {
		return nil, fmt.Errorf("convert the schema of ResourceSyncs: %w", err)
	}
	s := &schema{}
	if s.values, _, err = validation.NewSchemaValidator(&props); err != nil {
		return nil, fmt.Errorf("read the schema of ResourceSyncs: %w", err)
	}
	if s.lists, err = structural.NewStructural(&props); err != nil {
		return nil, fmt.Errorf("read the schema of ResourceSyncs: %w", err)
	}
	s.rules = cel.NewValidator(s.lists, true, celconfig.PerCallLimit)
	return s, nil
}

// read returns the ResourceSync of a document, or an error that has each value that is wrong.
func (s *schema) read(ctx context.Context, document []byte, name string) (*v1alpha1.ResourceSync, error) {
	of := &v1alpha1.ResourceSync{}
	var content map[string]any
	if err := json.Unmarshal(document, &content); err != nil {
		return nil, fmt.Errorf("resourcesync %s: %w", name, err)
	}
	errs := s.check(ctx, content)
	if len(errs) == 0 { // otherwise values may not be of the types of the fields
		unknown, err := strictjson.UnmarshalStrict(document, of)
		errs = append(append(errs, unknown...), err)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("resourcesync %s: %w", name, err)
	}
	return of, nil
}

func (s *schema) check(ctx context.Context, content map[string]any) (errs []error) {
	wrong := validation.ValidateCustomResource(nil, content, s.values)
	if len(wrong) == 0 { // otherwise values may not be of the types that rules take
		ofRules, _ := s.rules.Validate(ctx, nil, s.lists, content, nil, celconfig.RuntimeCELCostBudget)
		wrong = append(listtype.ValidateListSetsAndMaps(nil, s.lists, content), ofRules...)
	}
	for _, err := range wrong {
		errs = append(errs, err)
	}
	return errs
}
