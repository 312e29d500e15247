// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package manifest_test

import (
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
