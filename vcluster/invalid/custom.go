// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package invalid

import (
	"context"
	"fmt"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structural "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/objectmeta"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/berth-dev/berth/bounds"
)

const (
	// fewErrors is how many errors an object may be able to have without being validated for it.
	fewErrors = 1000
	// fewTexts is how many bytes they may have.
	fewTexts = 1 << 20
)

// object is what is validated of a custom resource.
type object struct {
	content map[string]any // that is written
	whole   map[string]any // with what stays as it is stored: rules are for both
	stored  map[string]any // what it replaces, if that exists
	props   *apiextensionsv1.JSONSchemaProps
	schema  *schemaTree
}

// check returns the errors of the object that are too many, or nil, and an error if its validation would take too much.
func (o *object) check(ctx context.Context) (field.ErrorList, error) {
	if err := bounds.ValueErrors.Check(int64(o.schema.mostErrors)); err != nil {
		return nil, fmt.Errorf("the schema of its CustomResourceDefinition has many required fields or alternatives: %w", err)
	}
	var r ruled
	r.add(o.schema, o.whole, 0)
	if err := bounds.RuleErrorSteps.Check(r.steps()); err != nil {
		return nil, fmt.Errorf("%d values are validated with rules, whose messages have %d bytes in all: %w", r.rules, r.bytes, err)
	}
	var p possible
	p.addObject(o.schema, o.content)
	if p.few() {
		return nil, nil // without its schema, which takes more to convert than most objects take to be validated
	}
	return o.validate(ctx)
}

func (o *object) validate(ctx context.Context) (field.ErrorList, error) {
	properties, internal, err := converted(o.props)
	if err != nil {
		return nil, err
	}
	errs, all := ofContent(o.content, properties)
	if !all {
		return cut(errs, " or more"), nil
	}
	if o.schema.hasLists {
		s, err := structural.NewStructural(internal)
		if err != nil {
			return nil, fmt.Errorf("convert schema: %w", err)
		}
		errs = append(errs, objectmeta.Validate(ctx, nil, o.content, s, false)...)
		if had := listtype.ValidateListSetsAndMaps(nil, s, o.stored); len(had) == 0 { // as upstream does
			errs = append(errs, listtype.ValidateListSetsAndMaps(nil, s, o.content)...)
		}
	}
	short := Cut(errs)
	if len(short) == len(errs) {
		return nil, nil
	}
	// Errors in what does not change are none for upstream. An object that had as many is left to it: they are not too many.
	if had, all := ofContent(o.stored, properties); o.stored != nil && all && len(had) >= len(errs) {
		return nil, nil
	}
	return short, nil
}

// converted returns a schema as upstream validates with it, and as upstream's internal type.
func converted(props *apiextensionsv1.JSONSchemaProps) (*spec.Schema, *apiextensions.JSONSchemaProps, error) {
	internal, properties := &apiextensions.JSONSchemaProps{}, &spec.Schema{}
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(props, internal, nil); err != nil {
		return nil, nil, fmt.Errorf("convert schema: %w", err)
	}
	if err := validation.ConvertJSONSchemaProps(internal, properties); err != nil {
		return nil, nil, fmt.Errorf("convert schema: %w", err)
	}
	return properties, internal, nil
}

// ofContent returns errors, and whether they are all.
func ofContent(content map[string]any, properties *spec.Schema) (errs field.ErrorList, all bool) {
	v := &validator{schema: properties}
	errs = validation.ValidateCustomResource(nil, content, v)
	return errs, !v.exceeded()
}
