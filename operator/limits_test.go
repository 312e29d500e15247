// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package operator_test

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/berth-dev/berth/api/v1alpha1"
)

// L1: the spaces of a tenant have the limits of the tenant, and else those of the configuration; nobody else sets them.
func TestSpacesHaveTheLimitsOfTheirTenant(t *testing.T) {
	e := newEnv(t)
	e.run()
	change(e, &v1alpha1.BerthConfiguration{ObjectMeta: tenant("berth").ObjectMeta}, func(c *v1alpha1.BerthConfiguration) {
		c.Spec.TenantDefaults.Limits = map[string]resource.Quantity{"watches": resource.MustParse("70"), "request-rate": resource.MustParse("9")}
	})
	e.create(tenant("solar", func(s *v1alpha1.TenantSpec) {
		s.Limits = map[string]resource.Quantity{"request-rate": resource.MustParse("5")}
	}))
	has := func(limits map[string]resource.Quantity) bool {
		watches, rate := limits["watches"], limits["request-rate"]
		return watches.Value() == 70 && rate.Value() == 5 && len(limits) == 2
	}
	e.spaceIs("solar", "has the limits", func(s *v1alpha1.Space) bool { return has(s.Spec.TenantLimits) })
	change(e, &v1alpha1.Space{ObjectMeta: tenant("solar").ObjectMeta}, func(s *v1alpha1.Space) {
		s.Spec.TenantLimits["requests-writing"] = resource.MustParse("100000")
	})
	e.spaceIs("solar", "has the limits again", func(s *v1alpha1.Space) bool { return has(s.Spec.TenantLimits) })

	err := e.Create(t.Context(), tenant("lunar", func(s *v1alpha1.TenantSpec) {
		s.Limits = map[string]resource.Quantity{"objects": resource.MustParse("5")}
	}))
	if err == nil || !strings.Contains(err.Error(), "must be limits of a tenant: memory-bytes") {
		t.Errorf("a limit of spaces alone: %v", err)
	}
}
