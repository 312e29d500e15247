// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	"github.com/berth-dev/berth/api/v1alpha1"
)

// U8: the usage of one tenant or of all is printed from the host, in all formats.
func TestUsageIsPrintedFromTheHost(t *testing.T) {
	h := use(t)
	above := newTenant("used", "")
	above.Spec.Namespaces.Quota = ptr.To[int32](10)
	above.Status.Subtree = v1alpha1.SubtreeUsage{
		Tenants: ptr.To[int32](1), Namespaces: ptr.To[int32](2), Used: map[corev1.ResourceName]resource.Quantity{"limits.cpu": resource.MustParse("4500m")},
	}
	h.make(t, above)
	h.make(t, newTenant("used-dev", "used", "used"))
	for _, tc := range []struct {
		args []string
		want string
	}{
		{[]string{"used"}, `TENANT   SPACES   NAMESPACES   CPU   MEMORY   BELOW   TOTAL CPU   TOTAL MEMORY
used     1/1      1/10         4     -        1       4500m/8     -
`},
		{[]string{"-l", "tree.berth.dev/used", "--no-headers"}, "used-dev   1/1   1   4   -   -   4/8   -\n"},
		{[]string{"used", "-o", "wide"}, `TENANT   RESOURCE     USED   LIMIT   PERCENT   TOTAL
used     namespaces   1      10      10%       2
used     limits.cpu   4      8       56.3%     4500m
`},
		{[]string{"used", "used-dev", "-o", "csv"}, `tenant,resource,used,limit,percent,total
used,namespaces,1,10,10,2
used,limits.cpu,4,8,56.3,4.5
used-dev,namespaces,1,,,1
used-dev,limits.cpu,4,8,50,4
`},
		{[]string{"-l", "tree.berth.dev/used", "-o", "name"}, "tenant.berth.dev/used-dev\n"},
		{[]string{"used-dev", "-o", "yaml"}, `- resource: namespaces
  tenant: used-dev
  total: 1
  used: 1
- limit: 8
  percent: 50
  resource: limits.cpu
  tenant: used-dev
  total: 4
  used: 4
`},
		{[]string{"used-dev", "-o", `jsonpath={range [*]}{.tenant} {.resource} {.used}/{.limit}{"\n"}{end}`}, "used-dev namespaces 1/\nused-dev limits.cpu 4/8\n"},
		{[]string{"-l", "test=none", "-o", "json"}, "[]\n"},
		{[]string{"-l", "test=none"}, ""},
	} {
		if diff := cmp.Diff(tc.want, must(t, append([]string{"usage"}, tc.args...)...)); diff != "" {
			t.Errorf("%q: -want +got:\n%s", tc.args, diff)
		}
	}
	if out := must(t, "usage", "-T", "-o", "json"); !regexp.MustCompile(`(?s)"tenant": "used",\s+"resource": "limits.cpu",\s+"used": 4,\s+"limit": 8,\s+"percent": 56.3,\s+"total": 4.5`).MatchString(out) {
		t.Errorf("printed:\n%s", out)
	}
	if _, hints, err := berth(t, "usage", "-l", "test=none"); err != nil || hints != "No tenants found\n" {
		t.Errorf("none: %q (%v)", hints, err)
	}
	out, _, err := berth(t, "usage", "missing", "used")
	if err == nil || !strings.Contains(err.Error(), `tenants.berth.dev "missing" not found`) || !strings.Contains(out, "\nused ") {
		t.Errorf("one is missing: %v\n%s", err, out)
	}
	for says, args := range map[string][]string{
		"--all-tenants prints the usage of all tenants; don't name some": {"-T", "used"},
		"--selector=a=b: selects among all tenants; don't name some":     {"-l", "a=b", "used"},
		"--output=xml: must be one of table, wide, name, csv,":           {"-o", "xml"},
		"--output=jsonpath={[: ":                                         {"-o", "jsonpath={["},
		`User "jane" cannot list resource "tenants"`:                     {"--as", "jane", "--as-group", "devs"},
	} {
		if out, _, err := berth(t, append([]string{"usage"}, args...)...); err == nil || !strings.Contains(err.Error(), says) || out != "" {
			t.Errorf("%q: got %v and %q, want %q", args, err, out, says)
		}
	}
	completed := must(t, "__complete", "usage", "used", "")
	if !strings.HasPrefix(completed, "used-dev\n") {
		t.Errorf("completed %q", completed)
	}
}

// L2: a period that isn't one is an error that names the flag, the value, and the remedy, before anything is asked.
func TestUsageOfAPeriodChecksItsFlags(t *testing.T) {
	dir := t.TempDir()
	for says, args := range map[string][]string{
		"--since=soon: must be a duration such as 90m, 12h, or 30d":      {"--since", "soon"},
		"--since=-1h: is negative":                                       {"--since=-1h"},
		"--since=1d-36h: must be a duration":                             {"--since=1d-36h"},
		"--since=65000d: must be a duration":                             {"--since", "65000d"},
		"--since=2999-01-01: is in the future; choose an earlier time":   {"--since", "2999-01-01"},
		"--until=2d: must be after --since=1d; choose a later time":      {"--since", "1d", "--until", "2d"},
		"--until=1h: needs --since, too":                                 {"--until", "1h"},
		"--selector=a=b: can't be used with --since; name the tenants":   {"--since", "1d", "-l", "a=b"},
		"--all-tenants prints the usage of all tenants; don't name some": {"--since", "1d", "-T", "acme"},
		"--output=name: with --since, must be one of table, wide, csv,":  {"--since", "1d", "-o", "name"},
		"the Berth server is not running on " + dir:                      {"--since", "1d12h"},
	} {
		if out, _, err := berth(t, append([]string{"usage", "--data-dir", dir}, args...)...); err == nil || !strings.Contains(err.Error(), says) || out != "" {
			t.Errorf("%q: got %v and %q, want %q", args, err, out, says)
		}
	}
}
