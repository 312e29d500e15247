// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package patches_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-dev/berth/bounds"
	"github.com/berth-dev/berth/vcluster/patches"
)

// read returns a patch that was read in small parts.
func read(kind types.PatchType, text string) *patches.Patch {
	p := patches.New(patches.Type(strings.ToUpper(string(kind)) + " ; charset=utf-8"))
	for len(text) > 0 {
		n := min(7, len(text))
		p.Add([]byte(text[:n]))
		text = text[n:]
	}
	return p
}

func repeat(n int, operation string) string {
	return "[" + strings.TrimSuffix(strings.Repeat(operation+",", n), ",") + "]"
}

func nested(levels, bytes int) string {
	return strings.Repeat(`{"a":`, levels) + `"` + strings.Repeat("x", bytes) + `"` + strings.Repeat("}", levels)
}

func environment(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `,{"name":"N%d","value":"1"}`, i)
	}
	return "[" + strings.TrimPrefix(b.String(), ",") + "]"
}

func custom(spec any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{"apiVersion": "example.com/v1", "kind": "Example", "spec": spec}}
}

func deployment(variables int) *appsv1.Deployment {
	d := &appsv1.Deployment{}
	d.Spec.Template.Spec.Containers = []corev1.Container{{Name: "app", Env: make([]corev1.EnvVar, variables)}}
	return d
}

// L3: a JSON patch of 400 KB took a minute, and a merge patch of 3 MB with 300 levels took 20 seconds and 2 GiB. Nothing
// interrupts that. Of a strategic merge patch, two elements suffice if the object's list is long.
func TestHostilePatchesAreRefusedForWhatTheyTake(t *testing.T) {
	const insert = `{"op":"add","path":"/spec/0","value":1}`
	list := custom(make([]any, 500_000))
	text := custom(strings.Repeat("x", 1_000_000))
	move := `{"op":"add","path":"/b","value":{}},{"op":"move","from":"/spec","path":"/b/a"},{"op":"move","from":"/b","path":"/spec"}`
	for name, c := range map[string]struct {
		kind   types.PatchType
		patch  string
		object any
	}{
		"many insertions into a long list of the object": {types.JSONPatchType, repeat(1000, insert), list},
		"many insertions into a long list of the patch": {types.JSONPatchType,
			repeat(1, `{"op":"add","path":"/spec","value":`+repeat(500_000, "1")+`},`+strings.Trim(repeat(1000, insert), "[]")), custom(nil)},
		"many insertions into a long list that is kept as bytes": {types.JSONPatchType, repeat(1000, insert),
			&appsv1.ControllerRevision{Data: runtime.RawExtension{Raw: []byte(`{"a":` + repeat(500_000, "1") + `}`)}}},
		"a path of many levels":                 {types.JSONPatchType, repeat(1, `{"op":"test","path":"`+strings.Repeat("/a", 1000)+`","value":1}`), text},
		"a path of many levels, all of escapes": {types.JSONPatchType, repeat(1, `{"op":"test","path":"`+strings.Repeat(`\u002fa`, 1000)+`","value":1}`), text},
		"a path by a name that is escaped":      {types.JSONPatchType, repeat(1, `{"op":"test","p\u0061th":"`+strings.Repeat("/a", 1000)+`","value":1}`), text},
		"a value of many levels":                {types.JSONPatchType, repeat(1, `{"op":"add","path":"/spec","value":`+nested(1000, 1_000_000)+`}`), custom(nil)},
		"a value that is moved deeper":          {types.JSONPatchType, repeat(1000, move), text},
		"a test of many levels":                 {types.JSONPatchType, repeat(1, `{"op":"test","path":"/spec","value":`+nested(4000, 1)+`}`), custom(nil)},
		"a test that is written with an escape": {types.JSONPatchType, repeat(1, `{"op":"t\u0065st","path":"/spec","value":`+nested(4000, 1)+`}`), custom(nil)},
		"a merge of many levels":                {types.MergePatchType, `{"spec":` + nested(1000, 1_000_000) + `}`, custom(nil)},
		"a merge into many levels":              {types.MergePatchType, `{"spec":` + nested(1000, 1) + `}`, text},
		"a merge of many levels in arrays":      {types.MergePatchType, `{"spec":` + strings.Repeat("[", 1000) + `"` + strings.Repeat("x", 1_000_000) + `"` + strings.Repeat("]", 1000) + `}`, custom(nil)},
		"one element into a long list":          {types.StrategicMergePatchType, `{"spec":{"template":{"spec":{"containers":[{"name":"app","env":` + environment(1) + `}]}}}}`, deployment(10_000)},
		"many elements into a list":             {types.StrategicMergePatchType, `{"spec":{"template":{"spec":{"containers":[{"name":"app","env":` + environment(10_000) + `}]}}}}`, deployment(1)},
	} {
		if err := read(c.kind, c.patch).Check(patches.ShapeOf(c.object)); !errors.Is(err, bounds.ErrExceeded) || !strings.Contains(err.Error(), "limit patch-steps") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Patches that clients make of large objects are not refused.
func TestUsualPatchesAreFarFromTheLimit(t *testing.T) {
	large := &corev1.ConfigMap{Data: map[string]string{"a": strings.Repeat("x", 1<<20)}}
	text := strings.Repeat("/usr/lib/", 100_000)
	for name, c := range map[string]struct {
		kind   types.PatchType
		patch  string
		object any
	}{
		"a label":                              {types.JSONPatchType, repeat(1, `{"op":"add","path":"/metadata/labels/a","value":"b"}`), large},
		"a text with slashes":                  {types.JSONPatchType, repeat(1, `{"op":"replace","path":"/data/a","value":"`+text+`"}`), large},
		"many operations":                      {types.JSONPatchType, repeat(1000, `{"op":"replace","path":"/spec/template/spec/containers/0/env/7/value","value":"b"}`), deployment(1000)},
		"as many operations as there may be":   {types.JSONPatchType, repeat(10_000, `{"op":"replace","path":"/data/a","value":"b"}`), large},
		"a label of an object with long lists": {types.StrategicMergePatchType, `{"metadata":{"labels":{"a":"b"}}}`, deployment(10_000)},
		"a merge of a large text":              {types.MergePatchType, `{"data":{"a":"` + text + `"}}`, large},
		"a long environment":                   {types.StrategicMergePatchType, `{"spec":{"template":{"spec":{"containers":[{"name":"app","env":` + environment(1000) + `}]}}}}`, deployment(1000)},
	} {
		p, shape := read(c.kind, c.patch), patches.ShapeOf(c.object)
		if steps, limit := p.Steps(shape), bounds.PatchSteps.Bound().Default; steps > limit/2 {
			t.Errorf("%s takes %d steps of %d", name, steps, limit)
		}
		if n := p.Memory(shape); n > 32<<20 {
			t.Errorf("%s takes %d bytes", name, n)
		}
	}
}

// Text that is no JSON is counted without harm: an API server refuses it.
func TestTextThatIsNoPatchIsCounted(t *testing.T) {
	for _, text := range []string{"", "]", "}}}}", `"`, "[{", `[{"path`, `{"a":[,,,]}]`, "\\\"{[", "null"} {
		for _, kind := range []types.PatchType{types.JSONPatchType, types.MergePatchType, types.StrategicMergePatchType} {
			if err := read(kind, text).Check(patches.ShapeOf(nil)); err != nil {
				t.Errorf("%q as %s: %v", text, kind, err)
			}
		}
	}
	if n := read(types.ApplyYAMLPatchType, environment(10_000)).Steps(patches.ShapeOf(deployment(10_000))); n != 0 {
		t.Errorf("server-side apply takes %d steps", n)
	}
}
