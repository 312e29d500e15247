// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package published

import (
	"context"
	"fmt"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/published/expression"
	"github.com/berth-dev/berth/published/fieldpath"
)

// Fields are the compiled fields of a Publication. They are safe for concurrent use.
type Fields []compiledField

type compiledField struct {
	path    fieldpath.Path
	program *expression.Program
}

// CompileFields checks and compiles fields. The error names the field, and is for the author of the Publication.
func CompileFields(compiler *expression.Compiler, fields []v1alpha1.PublicationField) (Fields, error) {
	compiled := make(Fields, 0, len(fields))
	for i, field := range fields {
		path, err := fieldpath.Parse(field.Path)
		if err == nil {
			err = path.Settable()
		}
		if err != nil {
			return nil, fmt.Errorf("spec.fields[%d].path: %w", i, err)
		}
		program, err := compiler.Compile(field.Expression)
		if err != nil {
			return nil, fmt.Errorf("spec.fields[%d].expression, for %s: %w", i, field.Path, err)
		}
		compiled = append(compiled, compiledField{path: path, program: program})
	}
	return compiled, nil
}

// Render sets the fields in a copy of input.Object, which itself is not changed. The copy is object, which may not share anything with it.
// An expression sees the unchanged input.Object, and as its value what the field has in the copy after the fields before it were set.
func (f Fields) Render(ctx context.Context, object map[string]any, input expression.Input) error {
	budget := expression.NewBudget(uint64(len(f)) * expression.CostLimit)
	for i, field := range f {
		for path := range field.path.Each(object) {
			input.Value = path.Get(object)
			value, err := field.program.Evaluate(ctx, input, budget)
			if err != nil {
				return fmt.Errorf("spec.fields[%d], for %s: %w", i, field.path, err)
			}
			if err := path.Set(object, value); err != nil {
				return fmt.Errorf("spec.fields[%d]: %w", i, err)
			}
		}
	}
	return nil
}
