// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package invalid

import (
	"reflect"

	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"k8s.io/kube-openapi/pkg/validation/strfmt"
	"k8s.io/kube-openapi/pkg/validation/validate"
)

const (
	// maxSteps is how many errors may be compared with each other: upstream compares each with those before it, at each level
	// of an object. It is some thousand errors.
	maxSteps = 5_000_000
	// maxTexts is how many bytes of text errors may have, at all levels together.
	maxTexts = 4 << 20
)

// validator validates an object as upstream does, until that has taken too much. It counts errors in alternatives as well, even
// if another alternative is valid: they take as much.
type validator struct {
	schema *spec.Schema
	steps  int
	texts  int
}

// Validate is what upstream's does: errors that it returns are upstream's.
func (v *validator) Validate(value any, _ ...validation.ValidationOption) *validate.Result {
	return (&part{all: v, schema: v.schema, root: v.schema, formats: strfmt.Default}).Validate(value)
}

func (v *validator) exceeded() bool { return v.steps > maxSteps || v.texts > maxTexts }

// part validates a part of an object.
type part struct {
	all     *validator
	within  *part
	schema  *spec.Schema
	root    any
	path    string
	formats strfmt.Registry
	errors  int // of the parts of it
}

func (p *part) SetPath(path string) { p.path = path }

// Applies to each value: upstream does not ask.
func (p *part) Applies(any, reflect.Kind) bool { return true }

func (p *part) Validate(value any) *validate.Result {
	if p.all.exceeded() {
		return &validate.Result{}
	}
	result := validate.NewSchemaValidator(p.schema, p.root, p.path, p.formats, p.partsBy).Validate(value)
	if p.within != nil {
		p.within.add(result.Errors)
	}
	return result
}

// add counts the errors of a part.
func (p *part) add(errs []error) {
	for _, err := range errs {
		p.errors++
		p.all.steps += p.errors
		p.all.texts += len(err.Error())
	}
}

// partsBy has the parts of p validated likewise.
func (p *part) partsBy(o *validate.SchemaValidatorOptions) {
	o.NewValidatorForField = func(_ string, s *spec.Schema, root any, path string, formats strfmt.Registry, _ ...validate.Option) validate.ValueValidator {
		return &part{all: p.all, within: p, schema: s, root: root, path: path, formats: formats}
	}
	o.NewValidatorForIndex = func(_ int, s *spec.Schema, root any, path string, formats strfmt.Registry, _ ...validate.Option) validate.ValueValidator {
		return &part{all: p.all, within: p, schema: s, root: root, path: path, formats: formats}
	}
}
