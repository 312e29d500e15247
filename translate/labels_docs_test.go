// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package translate_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// docs/reference/labels.md names every key of Berth's domain that the code uses.
func TestTheReferenceNamesEveryKeyOfBerthsDomain(t *testing.T) {
	page, err := os.ReadFile("../docs/reference/labels.md")
	if err != nil {
		t.Fatal(err)
	}
	keys := regexp.MustCompile(`\bDomain ?\+ ?"(/[\w-]+)"`)
	found := 0
	for _, dir := range []string{".", "pod", "../syncer", "../syncer/hostcache", "../isolation", "../isolation/hostpolicy", "../platform", "../shard"} {
		files, err := filepath.Glob(dir + "/*.go")
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			code, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for _, key := range keys.FindAllStringSubmatch(string(code), -1) {
				found++
				if name := "berth.dev" + key[1]; key[1] != "/unknown" && !strings.Contains(string(page), "`"+name) {
					t.Errorf("docs/reference/labels.md lacks %s of %s", name, file)
				}
			}
		}
	}
	whole := regexp.MustCompile(`= "((?:\w+\.)?berth\.dev/[\w-]*)"`)
	for _, dir := range []string{"../access", "../api/v1alpha1", "../client/connection", "../operator/defaults"} {
		files, err := filepath.Glob(dir + "/*.go")
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			code, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for _, key := range whole.FindAllStringSubmatch(string(code), -1) {
				found++
				if !strings.Contains(string(page), "`"+key[1]) {
					t.Errorf("docs/reference/labels.md lacks %s of %s", key[1], file)
				}
			}
		}
	}
	if found < 35 {
		t.Errorf("found only %d keys: this test looks for another form", found)
	}
}
