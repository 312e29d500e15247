// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"runtime"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

func TestVersionIsPrintedInEachFormat(t *testing.T) {
	info := versionInfo{Berth: "v0.1.0", Kubernetes: "v1.37.1", Go: "go1.26.0", Platform: "linux/amd64"}
	tests := map[string]struct{ reason, want string }{
		"": {"a person reads one line", "Berth v0.1.0 (Kubernetes v1.37.1, go1.26.0, linux/amd64)"},
		"json": {"a script reads fields", `{
  "berth": "v0.1.0",
  "kubernetes": "v1.37.1",
  "go": "go1.26.0",
  "platform": "linux/amd64"
}`},
		"yaml": {"and may like them better so", "berth: v0.1.0\ngo: go1.26.0\nkubernetes: v1.37.1\nplatform: linux/amd64"},
	}
	for output, test := range tests {
		t.Run("output "+output, func(t *testing.T) {
			got, err := printVersion(info, output)
			if err != nil || got != test.want {
				t.Errorf("%s: got %q (%v), want %q", test.reason, got, err, test.want)
			}
		})
	}
}

func TestVersionSaysTheSameInEachFormat(t *testing.T) {
	read := map[string]func(string, any) error{
		"json": func(s string, v any) error { return json.Unmarshal([]byte(s), v) },
		"yaml": func(s string, v any) error { return yaml.UnmarshalStrict([]byte(s), v) },
	}
	for output, unmarshal := range read {
		out, err := run(t, "version", "-o", output)
		if err != nil {
			t.Fatal(err)
		}
		var got versionInfo
		if err := unmarshal(out, &got); err != nil || got != readVersion() {
			t.Errorf("%s: got %+v (%v), want %+v", output, got, err, readVersion())
		}
	}
	out, err := run(t, "version")
	if err != nil || !strings.HasPrefix(out, "Berth ") || strings.Count(out, "\n") != 1 || !strings.Contains(out, runtime.Version()) {
		t.Errorf("plain: got %q (%v)", out, err)
	}
}
