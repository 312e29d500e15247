// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package isolation_test

import (
	"os"
	"regexp"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/berth-dev/berth/api/v1alpha1"
)

// Q1: docs/reference/quota.md has the quota that a space gets, each bound and no other.
func TestTheDefaultQuotaIsDocumented(t *testing.T) {
	doc, err := os.ReadFile("../docs/reference/quota.md")
	if err != nil {
		t.Fatal(err)
	}
	want, documented := map[string]string{}, map[string]string{}
	for name, bound := range v1alpha1.DefaultQuota() {
		want[string(name)] = bound.String()
	}
	for _, row := range regexp.MustCompile("(?m)^\\| `([\\w./-]+)` \\| (\\w+) \\|").FindAllStringSubmatch(string(doc), -1) {
		bound := resource.MustParse(row[2])
		documented[row[1]] = bound.String()
	}
	if diff := cmp.Diff(want, documented); diff != "" {
		t.Errorf("docs/reference/quota.md tells of another quota: -code +documentation:\n%s", diff)
	}
}
