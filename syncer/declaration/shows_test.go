// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package declaration_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structural "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"pgregory.net/rapid"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/syncer/declaration"
)

const schemaWithDefaults = `
type: object
properties:
  spec:
    type: object
    properties:
      note: {type: string}
      level: {type: string, default: low}
      count: {type: integer, default: 3}
      place:
        type: object
        default: {}
        properties:
          zone: {type: string, default: a}
          rack: {type: object, default: {}, properties: {row: {type: integer, default: 1}, column: {type: integer}}}
      parts:
        type: array
        items:
          type: object
          properties:
            of: {type: string}
            unit: {type: string, default: kg}
            box: {type: object, properties: {size: {type: integer, default: 2}, color: {type: string}}}
  status: {type: object, default: {}, properties: {phase: {type: string, default: New}}}
`

// shownPapers returns a declaration from the host, and what an API server sets in its objects.
func shownPapers(t testing.TB) (*declaration.Declaration, func(map[string]any)) {
	t.Helper()
	props := parse[apiextensionsv1.JSONSchemaProps](t, schemaWithDefaults)
	crd := definition(t, apiextensionsv1.ClusterScoped)
	crd.Spec.Versions[0].Schema.OpenAPIV3Schema = &props
	d, errs := declaration.Compile(&v1alpha1.ResourceSync{ObjectMeta: metav1.ObjectMeta{Name: crd.Name}, Spec: v1alpha1.ResourceSyncSpec{
		Direction: v1alpha1.SyncFromHost, Version: "v1", Status: []string{"status.phase"},
		Fields: []v1alpha1.SyncedField{
			{Path: "spec.note"}, {Path: "spec.count"}, {Path: "spec.place.rack.column"}, {Path: "spec.parts[*].of"}, {Path: "spec.parts[*].box.color"},
		},
	}}, crd)
	if len(errs) > 0 {
		t.Fatal(errs.ToAggregate())
	}
	internal := &apiextensions.JSONSchemaProps{}
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(&props, internal, nil); err != nil {
		t.Fatal(err)
	}
	served, err := structural.NewStructural(internal)
	if err != nil {
		t.Fatal(err)
	}
	return d, func(content map[string]any) { defaulting.Default(content, served) }
}

// paperSpec draws the spec of an object before the API server sets defaults.
func paperSpec(t *rapid.T) map[string]any {
	text, number := rapid.SampledFrom([]string{"", "a", "b", "kg", "low"}), rapid.Int64Range(0, 4)
	spec := map[string]any{}
	some := func(of map[string]any, name string, value func() any) {
		if rapid.Bool().Draw(t, name+" is set") {
			of[name] = value()
		}
	}
	drawText := func() any { return text.Draw(t, "text") }
	drawNumber := func() any { return number.Draw(t, "number") }
	some(spec, "note", drawText)
	some(spec, "level", drawText)
	some(spec, "count", drawNumber)
	some(spec, "place", func() any {
		place := map[string]any{}
		some(place, "zone", drawText)
		some(place, "rack", func() any {
			rack := map[string]any{}
			some(rack, "row", drawNumber)
			some(rack, "column", drawNumber)
			return rack
		})
		return place
	})
	some(spec, "parts", func() any {
		parts := []any{}
		for range rapid.IntRange(0, 2).Draw(t, "parts") {
			part := map[string]any{}
			some(part, "of", drawText)
			some(part, "unit", drawText)
			some(part, "box", func() any {
				box := map[string]any{}
				some(box, "size", drawNumber)
				some(box, "color", drawText)
				return box
			})
			parts = append(parts, part)
		}
		return parts
	})
	return spec
}

// C6: what an API server makes of a shown object is known again, and any other content isn't.
func TestAShownObjectIsKnownByItsContent(t *testing.T) {
	d, setDefaults := shownPapers(t)
	rapid.Check(t, func(t *rapid.T) {
		host := &unstructured.Unstructured{Object: map[string]any{"spec": paperSpec(t)}}
		host.SetName("web")
		setDefaults(host.Object)
		v := d.Show(host)
		setDefaults(v.Object)
		if !d.Shows(v, host) {
			t.Errorf("%v is not known as what is shown of %v", v.Object, host.Object)
		}
		v.SetResourceVersion("7")
		v.Object["status"] = "of another request"
		if !d.Shows(v, host) {
			t.Error("metadata or the status count")
		}
		changed := v.DeepCopy()
		changed.Object["spec"] = paperSpec(t)
		setDefaults(changed.Object)
		if got, want := d.Shows(changed, host), cmp.Equal(v.Object["spec"], changed.Object["spec"]); got != want {
			t.Errorf("%v instead of %v: known is %t, want %t", changed.Object, v.Object, got, want)
		}
		changed = v.DeepCopy()
		changed.Object["more"] = map[string]any{}
		if d.Shows(changed, host) {
			t.Error("a field beside the spec doesn't count")
		}
	})
}
