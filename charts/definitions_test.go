// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package charts

import (
	"bytes"
	"encoding/json"
	"os"
	"regexp"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-dev/berth/bounds"
)

// platforms are the fields of a space's spec that a space of the platform itself can't have in the values.
var platforms = []string{"platformName", "tenantName", "publications", "paused", "deletionPolicy", "sleep", "snapshots"}

// operators are the fields of a space's spec that the operator sets in the space of a tenant.
var operators = []string{"tenantName", "access", "namespaces", "publications"}

// X1: the schemas know the specs of Berth's objects as the API has them.
func TestTheChartTakesFromTheCodeWhatSpecsAre(t *testing.T) {
	for file, definitions := range map[string]map[string]any{
		"berth/values.schema.json": {
			"spaceSpec": specSchema(t, "Space", platforms...), "tenantSpec": specSchema(t, "Tenant"), "configurationSpec": specSchema(t, "BerthConfiguration"),
		},
		"space/values.schema.json": {
			"spaceSpec": specSchema(t, "Space", operators...), "tenantSpec": specSchema(t, "Tenant"), "ownerSpec": ownerSchema(t),
			"publicationSpec": specSchema(t, "Publication", "tenants"),
		},
	} {
		have, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		want := &bytes.Buffer{}
		encoder := json.NewEncoder(want)
		encoder.SetEscapeHTML(false)
		encoder.SetIndent("  ", "  ")
		if err := encoder.Encode(definitions); err != nil {
			t.Fatal(err)
		}
		text := `  "definitions": ` + string(bytes.TrimSpace(want.Bytes())) + ",\n"
		text = regexp.MustCompile(`(?ms)^  "definitions": \{.*?^  \},\n`).ReplaceAllLiteralString(string(have), text)
		if os.Getenv(envUpdate) != "" {
			if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		} else if diff := cmp.Diff(text, string(have)); diff != "" {
			t.Errorf("%s is stale; run: go generate ./charts\n%s", file, diff)
		}
	}
}

// ownerSchema is the schema of an owner of a tenant, whose name is the key of a map.
func ownerSchema(t *testing.T) map[string]any {
	t.Helper()
	owners := specSchema(t, "Tenant")["properties"].(map[string]any)["owners"].(map[string]any)
	owner := owners["items"].(map[string]any)
	delete(owner["properties"].(map[string]any), "name")
	owner["required"] = []string{"kind"}
	return owner
}

// specSchema is the schema of the spec of objects of a kind, as the API has it, less some fields.
func specSchema(t *testing.T, kind string, without ...string) map[string]any {
	t.Helper()
	data, err := json.Marshal(definition(t, kind).Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"])
	if err != nil {
		t.Fatal(err)
	}
	var schema map[string]any
	if err := json.Unmarshal(data, &schema); err != nil {
		t.Fatal(err)
	}
	strictly(schema)
	delete(schema, "minProperties")
	properties := schema["properties"].(map[string]any)
	for _, name := range without {
		if properties[name] == nil {
			t.Errorf("a %s has no spec.%s that could be left out", kind, name)
		}
		delete(properties, name)
	}
	if limits, ok := properties["limits"].(map[string]any); ok {
		var names []string
		for _, b := range bounds.Table() {
			if b.Scope == bounds.PerSpace {
				names = append(names, b.Name)
			}
		}
		limits["propertyNames"] = map[string]any{"enum": names}
	}
	return schema
}
