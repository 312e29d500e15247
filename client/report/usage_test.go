// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package report_test

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/client/report"
)

// U8: the usage of tenants is printed against their limits, a line for each tenant or for each resource.
func TestTheUsageOfTenantsIsPrinted(t *testing.T) {
	tenants := sample()
	acme := &tenants[3].Status
	acme.Subtree = v1alpha1.SubtreeUsage{Tenants: ptr.To[int32](4), Namespaces: ptr.To[int32](13), Used: quantities("limits.cpu", "8750m", "limits.memory", "18Gi", "count/jobs.batch", "7")}
	acme.Usage.Hard["pods"] = resource.MustParse("0")
	var table, wide, plain strings.Builder
	if err := report.Usage(&table, tenants, true); err != nil {
		t.Fatal(err)
	}
	golden(t, "usage", table.String())
	if err := report.UsageByResource(&wide, report.Uses(tenants), true); err != nil {
		t.Fatal(err)
	}
	golden(t, "usage-wide", wide.String())
	if err := report.Usage(&plain, tenants, false); err != nil || strings.Contains(plain.String(), "TENANT") {
		t.Errorf("without headers: %v\n%s", err, plain.String())
	}
}

func TestThePercentOfALimit(t *testing.T) {
	for name, tc := range map[string]struct {
		used, limit string
		want        *float64
	}{
		"no limit":          {"1", "", nil},
		"a limit of 0":      {"1", "0", nil},
		"nothing":           {"0", "8", ptr.To(0.0)},
		"a tenth of it":     {"1m", "1", ptr.To(0.1)},
		"it is rounded":     {"1", "3", ptr.To(33.3)},
		"more than allowed": {"17Gi", "16Gi", ptr.To(106.3)},
	} {
		use := report.Use{Total: resource.MustParse(tc.used)}
		if tc.limit != "" {
			use.Limit = ptr.To(resource.MustParse(tc.limit))
		}
		if got := use.Percent(); (got == nil) != (tc.want == nil) || got != nil && *got != *tc.want {
			t.Errorf("%s: got %v, want %v", name, ptr.Deref(got, -1), ptr.Deref(tc.want, -1))
		}
	}
}
