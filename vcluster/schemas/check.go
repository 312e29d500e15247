// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package schemas

import (
	"fmt"
	"slices"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/berth-dev/berth/bounds"
)

// Check returns what is too much in a definition: versions, names, patterns, or one pattern.
func Check(d *apiextensions.CustomResourceDefinition) field.ErrorList {
	path := field.NewPath("spec", "versions")
	if n := len(d.Spec.Versions); exceeds(bounds.DefinitionVersions, n) {
		// Nothing else is looked at: the schemas may be as many.
		return field.ErrorList{tooMuch(path, n, bounds.DefinitionVersions)}
	}
	c := &checker{seen: map[string]int{}, values: map[string]int{}}
	if n := len(d.Spec.Names.ShortNames) + len(d.Spec.Names.Categories); exceeds(bounds.DefinitionNames, n) {
		// Discovery repeats them for each version.
		c.errs = append(c.errs, tooMuch(field.NewPath("spec", "names", "shortNames"), n, bounds.DefinitionNames))
	}
	if d.Spec.Validation != nil {
		// The schema is here if all versions have the same.
		c.schema(path.Index(0).Child("schema", "openAPIV3Schema"), "", d.Spec.Validation.OpenAPIV3Schema)
	}
	for i := range d.Spec.Versions {
		if v := d.Spec.Versions[i].Schema; v != nil {
			clear(c.values)
			c.schema(path.Index(i).Child("schema", "openAPIV3Schema"), "", v.OpenAPIV3Schema)
		}
	}
	if n := len(c.seen); exceeds(bounds.DefinitionPatterns, n) {
		c.errs = append(c.errs, tooMuch(path, n, bounds.DefinitionPatterns))
	}
	return c.errs
}

// CheckShared returns an error if a definition of the host is beyond what spaces may define: what it costs, a tenant can spend.
func CheckShared(crd *apiextensionsv1.CustomResourceDefinition) error {
	checked := &apiextensions.CustomResourceDefinition{}
	if err := apiextensionsv1.Convert_v1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition(crd.DeepCopy(), checked, nil); err != nil {
		return fmt.Errorf("convert the CustomResourceDefinition %s: %w", crd.Name, err)
	}
	return Check(checked).ToAggregate()
}

// CheckUpdate returns what is too much in a definition, less what was too much in the one that it replaces: a definition
// that was stored before there were bounds can still be labeled, and its other fields changed.
func CheckUpdate(d, old *apiextensions.CustomResourceDefinition) field.ErrorList {
	errs := Check(d)
	if len(errs) == 0 {
		return nil
	}
	had := Check(old)
	return slices.DeleteFunc(errs, func(e *field.Error) bool {
		return slices.ContainsFunc(had, func(h *field.Error) bool { return h.Error() == e.Error() })
	})
}

func exceeds(q bounds.Quantity, n int) bool { return q.Check(int64(n)) != nil }

func tooMuch(path *field.Path, n int, q bounds.Quantity) *field.Error {
	return field.Invalid(path, n, q.Check(int64(n)).Error())
}

// maxErrors is how many errors of one definition are reported.
const maxErrors = 10

// checker looks at all patterns of a definition's schemas.
type checker struct {
	// seen has the instructions of each pattern that is not too large.
	seen map[string]int
	// values has the instructions of all patterns for a value, by where it is in an object: each matches it.
	values map[string]int
	errs   field.ErrorList
}

// pattern looks at one for the value, or for the names of fields, at a place in an object.
func (c *checker) pattern(path *field.Path, value, pattern string) {
	if pattern == "" {
		return
	}
	if n := len(pattern); exceeds(bounds.PatternBytes, n) { // nothing parses it
		c.refuse(path, n, bounds.PatternBytes)
		return
	}
	length, seen := c.seen[pattern]
	if !seen {
		if !exceeds(bounds.DefinitionPatterns, len(c.seen)) { // or the definition is refused anyway
			length = Instructions(pattern)
		}
		c.seen[pattern] = length
		if exceeds(bounds.PatternInstructions, length) {
			c.refuse(path, length, bounds.PatternInstructions)
			return
		}
	}
	before := c.values[value]
	c.values[value] += length
	if n := c.values[value]; exceeds(bounds.ValueInstructions, n) && !exceeds(bounds.ValueInstructions, before) {
		c.refuse(path, n, bounds.ValueInstructions)
	}
}

func (c *checker) refuse(path *field.Path, n int, q bounds.Quantity) {
	if len(c.errs) < maxErrors {
		c.errs = append(c.errs, tooMuch(path, n, q))
	}
}

// schema looks at one for the value at a place in an object.
func (c *checker) schema(path *field.Path, value string, s *apiextensions.JSONSchemaProps) {
	if s == nil {
		return
	}
	c.pattern(path.Child("pattern"), value, s.Pattern)
	if s.Items != nil {
		c.schema(path.Child("items"), value+"/*", s.Items.Schema)
		c.list(path.Child("items"), value+"/*", s.Items.JSONSchemas)
	}
	c.list(path.Child("allOf"), value, s.AllOf)
	c.list(path.Child("anyOf"), value, s.AnyOf)
	c.list(path.Child("oneOf"), value, s.OneOf)
	c.schema(path.Child("not"), value, s.Not)
	if s.AdditionalProperties != nil {
		c.schema(path.Child("additionalProperties"), value+"/*", s.AdditionalProperties.Schema)
	}
	if s.AdditionalItems != nil {
		c.schema(path.Child("additionalItems"), value+"/*", s.AdditionalItems.Schema)
	}
	c.named(path.Child("properties"), value, s.Properties)
	c.named(path.Child("definitions"), value, s.Definitions)
	for pattern, schema := range s.PatternProperties {
		at := path.Child("patternProperties")
		c.pattern(at, value+"/", pattern)
		c.schema(at.Key(pattern), value+"/*", &schema)
	}
	for key, dependency := range s.Dependencies {
		c.schema(path.Child("dependencies").Key(key), value, dependency.Schema)
	}
}

func (c *checker) list(path *field.Path, value string, schemas []apiextensions.JSONSchemaProps) {
	for i := range schemas {
		c.schema(path.Index(i), value, &schemas[i])
	}
}

func (c *checker) named(path *field.Path, value string, schemas map[string]apiextensions.JSONSchemaProps) {
	for key := range schemas {
		s := schemas[key]
		c.schema(path.Key(key), value+"/"+key, &s)
	}
}
