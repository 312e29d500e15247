// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package shard

import (
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/berth-dev/berth/definitions"
	"github.com/berth-dev/berth/internal/testcrd"
)

// M4: a definition of the host with expensive schemas is not forced on spaces, because a tenant could spend what it costs.
func TestHostileSchemasOfSyncedKindsAreNotForced(t *testing.T) {
	t.Parallel()
	for pattern, want := range map[string]string{"x*": "", strings.Repeat("x{1000}", 50): "pattern"} {
		shared, err := definitions.ForSync(testcrd.New("example.com", "Gadget", &apiextensionsv1.JSONSchemaProps{
			Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{"a": {Type: "string", Pattern: pattern}},
		}), "v1")
		if err != nil {
			t.Fatal(err)
		}
		err = checkDefinitions(map[string]*definitions.Shared{"gadgets": shared})
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "sync of gadgets")) {
			t.Errorf("pattern %.20q: %v, want %q", pattern, err, want)
		}
	}
}
