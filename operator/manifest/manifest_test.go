// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package manifest_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-dev/berth/operator/manifest"
)

// X1: a manifest is objects of Berth's API as they are written, without defaults, and nothing else.
func TestReadTakesObjectsOfBerthsAPI(t *testing.T) {
	objects, err := manifest.Read([]byte(`# comment
---
apiVersion: berth.dev/v1alpha1
kind: Tenant
metadata: {name: acme}
spec: {owners: [{kind: User, name: alice}]}
---
# nothing
---
apiVersion: berth.dev/v1alpha1
kind: BerthConfiguration
metadata: {name: berth}
`))
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"apiVersion": "berth.dev/v1alpha1", "kind": "Tenant", "metadata": map[string]any{"name": "acme"},
		"spec": map[string]any{"owners": []any{map[string]any{"kind": "User", "name": "alice"}}},
	}
	if len(objects) != 2 || objects[1].GetKind() != "BerthConfiguration" {
		t.Fatalf("read %v", objects)
	}
	if diff := cmp.Diff(want, objects[0].Object); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// X1: a slip of the finger is an error that names the document and the field.
func TestReadRefusesWhatTheAPIDoesNotKnow(t *testing.T) {
	for text, says := range map[string]string{
		"{apiVersion: v1, kind: Secret, metadata: {name: a}}":                                                    "Secret",
		"{apiVersion: berth.dev/v1alpha1, kind: Tenant, metadata: {name: a}, spec: {ownres: []}}":                `unknown field "spec.ownres"`,
		"{apiVersion: berth.dev/v1alpha1, kind: Tenant, spec: {private: true}}":                                  "metadata.name",
		"---\n{apiVersion: berth.dev/v1alpha1, kind: Tenant, metadata: {name: a}}\n---\n{kind: Tenant, name: b}": "document 2",
		"[": "document 1",
	} {
		if _, err := manifest.Read([]byte(text)); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want it to say %s", text, err, says)
		}
	}
}

// Values of JSON may follow each other, as jq writes them. YAML may begin as JSON does.
func TestDocumentsAreOfYAMLOrJSON(t *testing.T) {
	for text, want := range map[string]string{
		"{\"a\": 1}\n{\"b\": 2}\n":        `1 {"a":1} 2 {"b":2}`,
		"{\"a\": 1}\n---\n{\"b\": 2}\n":   `1 {"a":1} 2 {"b":2}`,
		"{a: 1}\n---\n{b: 2}\n":           `1 {"a":1} 2 {"b":2}`,
		"# comment\n---\na: 1\n---\nb: 2": `2 {"a":1} 3 {"b":2}`,
		"":                                "",
	} {
		documents, err := manifest.Documents([]byte(text))
		var got []string
		for _, d := range documents {
			got = append(got, fmt.Sprintf("%d %s", d.Number, d.JSON))
		}
		if strings.Join(got, " ") != want || err != nil {
			t.Errorf("%q: got %q and %v, want %q", text, got, err, want)
		}
	}
	for text, says := range map[string]string{
		"a: 1\n---\na: 1\na: 2\n":   "document 2",
		`{"a": 1} {"b": 1, "b": 2}`: "document 2",
		"- a: 1\n":                  "document 1",
		"a: 1\n---\n\"a string\"\n": "document 2",
		"{\"a\": 1}\n{\"b\": 2\n":   "document 2",
	} {
		if _, err := manifest.Documents([]byte(text)); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: got %v, want it to say %s", text, err, says)
		}
	}
}
