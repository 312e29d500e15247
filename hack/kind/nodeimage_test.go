// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestANodeHasTheKubernetesThatIsAskedFor(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, file := range []string{"go.mod", "kubernetes-1.33/go.mod", "kubernetes-1.34/go.mod"} {
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte("module x\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	key := func(module string) string {
		t.Helper()
		key, err := cacheKey(module)
		if err != nil {
			t.Fatal(err)
		}
		return key
	}
	for release, want := range map[string]string{"": ".", "1.33": "kubernetes-1.33", "1.34": "kubernetes-1.34"} {
		if module, err := kubernetesModule(release); err != nil || module != want {
			t.Errorf("for release %q the module is %q, %v; want %q", release, module, err, want)
		}
	}
	for _, unknown := range []string{"1.32", "1.3", "../kind", "*"} {
		if _, err := kubernetesModule(unknown); err == nil || !strings.Contains(err.Error(), "it can be 1.33 or 1.34") {
			t.Errorf("release %q does not say which there are: %v", unknown, err)
		}
	}
	now, older := key("."), key("kubernetes-1.33")
	if now == older {
		t.Error("two releases have one image")
	}
	if err := os.WriteFile("kubernetes-1.33/go.mod", []byte("module y\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if key("kubernetes-1.33") == older {
		t.Error("an image is not built anew when what it is made of changes")
	}
	if key(".") != now {
		t.Error("an image is built anew when what another release is made of changes")
	}
}
