// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package fieldpath_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/berth-dev/berth/published/fieldpath"
)

// P1
func TestSetSetsAFieldAndWhatLeadsToIt(t *testing.T) {
	for name, c := range map[string]struct{ path, object, value, want string }{
		"a field":                  {"data.tenant", `{"data":{"a":"b"}}`, `"solar"`, `{"data":{"a":"b","tenant":"solar"}}`},
		"what is there":            {"data", `{"data":{"a":"b"}}`, `{"c":"d"}`, `{"data":{"c":"d"}}`},
		"maps on the way":          {"spec.hard.pods", `{}`, `7`, `{"spec":{"hard":{"pods":7}}}`},
		"a key in brackets":        {`metadata.annotations["example.com/team"]`, `{}`, `"x"`, `{"metadata":{"annotations":{"example.com/team":"x"}}}`},
		"a key with a quote":       {`data["a\"]b"]`, `{}`, `1`, `{"data":{"a\"]b":1}}`},
		"an element":               {"a[1]", `{"a":[1,2,3]}`, `9`, `{"a":[1,9,3]}`},
		"one more element":         {"a[1].b", `{"a":[{"b":1}]}`, `9`, `{"a":[{"b":1},{"b":9}]}`},
		"a list that is missing":   {`a.b["c.d"][0].e`, `{}`, `true`, `{"a":{"b":{"c.d":[{"e":true}]}}}`},
		"a list in a list":         {"a[0][1]", `{"a":[[1]]}`, `2`, `{"a":[[1,2]]}`},
		"null on the way":          {"a.b", `{"a":null}`, `1`, `{"a":{"b":1}}`},
		"null removes":             {"a.b", `{"a":{"b":1,"c":2}}`, `null`, `{"a":{"c":2}}`},
		"null adds nothing":        {"a[3].b", `{}`, `null`, `{}`},
		"null in a short list":     {"a[3].b", `{"a":[]}`, `null`, `{"a":[]}`},
		"null in what is no list":  {"a[0].b", `{"a":{}}`, `null`, "a list"},
		"null in what is a list":   {"a.b", `{"a":[]}`, `null`, "an object"},
		"null below a value":       {"a.b", `{"a":1}`, `null`, "is a number"},
		"null for an element":      {"a[0]", `{"a":[1]}`, `null`, "can't be null"},
		"an index too high":        {"a[2]", `{"a":[1]}`, `1`, "has 1 elements, so the index may be at most 1"},
		"a value in the way":       {"a.b.c", `{"a":{"b":"x"}}`, `1`, `["a"]["b"] is a string and not an object`},
		"an index of an object":    {"a[0]", `{"a":{}}`, `1`, `["a"] is an object and not a list`},
		"a name of a list":         {"a.b", `{"a":[]}`, `1`, `["a"] is a list and not an object`},
		"a name of a boolean":      {"a[0].b", `{"a":[true]}`, `1`, `["a"][0] is a boolean`},
		"what an error comes from": {"a[0].b[7]", `{"a":[{"b":[]}]}`, `1`, `the list at ["a"][0]["b"] has 0 elements`},
	} {
		t.Run(name, func(t *testing.T) {
			path, err := fieldpath.Parse(c.path)
			if err != nil {
				t.Fatal(err)
			}
			var object map[string]any
			var value any
			decode(t, c.object, &object)
			decode(t, c.value, &value)
			err = path.Set(object, value)
			if !strings.HasPrefix(c.want, "{") {
				if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), c.path) {
					t.Errorf("the error is %v, want one that says %q and names %s", err, c.want, c.path)
				}
				return
			}
			var want map[string]any
			decode(t, c.want, &want)
			if diff := cmp.Diff(want, object); err != nil || diff != "" {
				t.Errorf("%v, (-want +got):\n%s", err, diff)
			}
		})
	}
}

func TestEachStandsForTheElementsThatThereAre(t *testing.T) {
	var object map[string]any
	decode(t, `{"c":[{"image":"a","env":[1,2]},{"env":[3]},7],"d":{"e":1}}`, &object)
	for text, want := range map[string][]any{
		"c[*].image": {"a", nil, nil}, "c[*].env[*]": {1.0, 2.0, 3.0}, "c[*].env[1]": {2.0, nil, nil}, "c[1].env[*]": {3.0},
		"d.e": {1.0}, "d.f": {nil}, "d[*]": nil, "f[*]": nil, "d.e[*]": nil, "c.image": {nil}, "d[0]": {nil},
	} {
		path, err := fieldpath.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		var got []any
		for one := range path.Each(object) {
			got = append(got, one.Get(object))
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: (-want +got):\n%s", text, diff)
		}
	}
}

func TestInElementsIsOfListsThatThereAre(t *testing.T) {
	var object map[string]any
	decode(t, `{"c":[{"image":"a"},7],"d":{"e":1}}`, &object)
	for text, want := range map[string]bool{
		"c[0].image": true, "c[0].env": true, "c[1].a": true, "c[2]": false, "c[0].probe.headers[0].value": false, "c[0].probe.headers": true,
		"d.e": true, "d.e.f": true, "d.e[0]": false, "f.g.h": true, "f.g[0].h": false, "d[0]": false,
	} {
		path, err := fieldpath.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		if got := path.InElements(object); got != want {
			t.Errorf("%s: %t, want %t", text, got, want)
		}
	}
}

func TestInFindsFieldsOfKubernetesTypes(t *testing.T) {
	for text, want := range map[string]string{
		"spec.containers[*].image": "", `spec.nodeSelector["a/b"]`: "", "metadata.labels.a": "", "spec.tolerations[0]": "", "spec": "",
		`spec.containers[*].resources.limits["cpu"]`: "", "spec.securityContext.runAsUser": "", "spec.volumes[*].secret.secretName": "",
		"spec.container": `["spec"] has no field container`, "spec.containers.image": "is a list; name an element", "spec.nodeName.a": "is a value without fields",
		"spec.nodeSelector[0]": "is not a list", "spec.Containers": "has no field", "spec.containers[*].resources.limits.cpu.a": "is a value without fields",
	} {
		path, err := fieldpath.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		if err := path.In(&corev1.Pod{}); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: the error is %v, want %q", text, err, want)
		}
	}
}

func TestParseRefusesWhatIsNoPath(t *testing.T) {
	for path, want := range map[string]string{
		"":                       "is empty",
		".a":                     "character 1: a name is missing",
		"a.":                     "character 2: a name is missing",
		"a..b":                   "character 2: a name is missing",
		"[0]":                    "begins with the name",
		`["a"]`:                  "begins with the name",
		"a b":                    "character 2: ' ' is not expected",
		"a/b":                    "'/' is not expected",
		"a[x]":                   "an index has the form [0] or [*]",
		"a[-1]":                  "an index has the form [0] or [*]",
		"a[0":                    "an index has the form [0] or [*]",
		"a[99999]":               "an index has the form [0] or [*]",
		`a["b`:                   "is not a JSON string",
		`a["b"`:                  `["key"]`,
		`a[""]`:                  `["key"]`,
		`a["b"]c`:                "'c' is not expected",
		strings.Repeat("a.", 65): "more than 64 steps",
	} {
		if _, err := fieldpath.Parse(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: the error is %v, want one that says %q", path, err, want)
		}
	}
}

// P1: a field can't make another object of a copy, or hide that it is one.
func TestSettableRefusesWhatIdentifiesAnObject(t *testing.T) {
	for text, want := range map[string]bool{
		"data.a": true, "spec": true, "webhooks[0].name": true, "metadata.labels": true, "metadata.labels.a": true, `metadata.annotations["example.com/a"]`: true,
		"apiVersion": false, "kind": false, "kind.a": false, "status": false, "status.a": false, "metadata": false, "metadata.name": false,
		"metadata.namespace": false, "metadata.ownerReferences[0].uid": false, "metadata.finalizers": false,
		`metadata.labels["berth.dev/publication"]`: false, `metadata.annotations["x.berth.dev/y"]`: false, `["metadata"]`: false,
	} {
		path, err := fieldpath.Parse(text)
		if err == nil {
			err = path.Settable()
		}
		if (err == nil) != want {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// Whatever the path and the object are, a field that was set is there, and nothing panics.
func FuzzSet(f *testing.F) {
	f.Add(`a.b["c.d"][0].e`, `{"a":{"b":{"c.d":[{"f":1}]}}}`)
	f.Add("spec.c[*].d[*]", `{"spec":{"c":[{"d":[1]},{"d":{}}]}}`)
	f.Add("spec.rules[1].hosts[0]", `{"spec":{"rules":[null]}}`)
	f.Fuzz(func(t *testing.T, text, content string) {
		path, err := fieldpath.Parse(text)
		var object map[string]any
		if err != nil || json.Unmarshal([]byte(content), &object) != nil || object == nil {
			return
		}
		if strings.Contains(text, "[*]") {
			for one := range path.Each(object) {
				_ = one.Set(object, one.Get(object))
			}
			return
		}
		before, _ := json.Marshal(object)
		if path.Set(object, "value") != nil {
			return
		}
		once, err := json.Marshal(object)
		if err != nil {
			t.Fatal(err)
		}
		if err := path.Set(object, "value"); err != nil {
			t.Fatalf("%q can't be set again in %s: %v", text, once, err)
		}
		if again, _ := json.Marshal(object); string(again) != string(once) {
			t.Fatalf("%q changed %s once to %s, and then to %s", text, before, once, again)
		}
		if err := path.Set(object, nil); err != nil && !strings.Contains(err.Error(), "can't be null") {
			t.Fatalf("%q can't be removed from %s: %v", text, once, err)
		}
	})
}

func decode(t *testing.T, content string, into any) {
	t.Helper()
	if err := json.Unmarshal([]byte(content), into); err != nil {
		t.Fatalf("%s: %v", content, err)
	}
}
