// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package invalid

import (
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"pgregory.net/rapid"

	"github.com/berth-dev/berth/api/crds"
)

// schemas are random ones that may be anything at each level, with properties a, b, and c.
func schemas(t *rapid.T, depth int) apiextensionsv1.JSONSchemaProps {
	names := rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"a", "b", "c"}), 0, 3, rapid.ID[string])
	s := apiextensionsv1.JSONSchemaProps{Type: rapid.SampledFrom([]string{"object", "array", "string", "integer"}).Draw(t, "type")}
	if rapid.Bool().Draw(t, "enum") {
		s.Enum = []apiextensionsv1.JSON{{Raw: []byte(`"one"`)}, {Raw: []byte(`2`)}}
	}
	if depth > 0 && rapid.Bool().Draw(t, "alternatives") {
		s.AnyOf = []apiextensionsv1.JSONSchemaProps{schemas(t, depth-1), schemas(t, depth-1)}
	}
	switch {
	case depth == 0:
	case s.Type == "array":
		items := schemas(t, depth-1)
		s.Items = &apiextensionsv1.JSONSchemaPropsOrArray{Schema: &items}
	case s.Type == "object":
		s.Required = names.Draw(t, "required")
		s.Properties = map[string]apiextensionsv1.JSONSchemaProps{}
		for _, name := range names.Draw(t, "properties") {
			s.Properties[name] = schemas(t, depth-1)
		}
	}
	return s
}

func values(t *rapid.T, depth int) any {
	switch kind := rapid.IntRange(0, 3).Draw(t, "kind"); {
	case kind == 0 && depth > 0:
		return contents(t, depth-1)
	case kind == 1 && depth > 0:
		return []any{values(t, depth-1), values(t, depth-1)}
	case kind == 2:
		return "text"
	default:
		return int64(1)
	}
}

func contents(t *rapid.T, depth int) map[string]any {
	content := map[string]any{}
	for _, name := range rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"a", "b", "c", "d"}), 0, 4, rapid.ID[string]).Draw(t, "names") {
		content[name] = values(t, depth)
	}
	return content
}

// L3: an object has no more errors than are possible by what is counted, so that those that are not validated have few.
func TestHostileObjectsHaveNoMoreErrorsThanAreCounted(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		schema := schemas(t, 3)
		content := contents(t, 3)
		properties, _, err := converted(&schema)
		if err != nil {
			t.Fatal(err)
		}
		errs, _ := ofContent(content, properties)
		var p possible
		p.addObject(newSchema(&schema), content)
		if len(errs) > p.errors {
			t.Errorf("%d errors, and %d were counted: %v", len(errs), p.errors, errs)
		}
	})
}

// A Space with many owners and what the host remembers of its fields is not validated twice.
func TestObjectsOfLargeDefinitionsHaveFewErrors(t *testing.T) {
	definitions, err := crds.All()
	if err != nil {
		t.Fatal(err)
	}
	fields := map[string]any{}
	for _, name := range []string{"a", "b", "c", "d", "e", "f", "g", "h"} {
		fields[name] = map[string]any{name: map[string]any{}, ".": map[string]any{}}
	}
	owner := map[string]any{"kind": "User", "name": "alice", "clusterRoles": []any{"admin", "berth-namespace-deleter"}}
	for _, d := range definitions {
		if d.Spec.Names.Kind != "Space" {
			continue
		}
		content := map[string]any{
			"metadata": map[string]any{"name": "solar", "managedFields": []any{fields, fields, fields, fields}},
			"spec":     map[string]any{"access": map[string]any{"owners": []any{owner, owner, owner, owner, owner, owner, owner, owner, owner, owner}}},
		}
		var p possible
		if p.addObject(newSchema(d.Spec.Versions[0].Schema.OpenAPIV3Schema), content); !p.few() {
			t.Errorf("it may have %d errors with %d bytes of values", p.errors, p.texts)
		}
		return
	}
	t.Error("no definition of Space")
}
