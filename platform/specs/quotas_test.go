// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package specs

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/translate"
)

func scopedQuota(name, pods string, scopes ...corev1.ResourceQuotaScope) v1alpha1.ScopedQuota {
	return v1alpha1.ScopedQuota{Name: name, Hard: map[corev1.ResourceName]resource.Quantity{"pods": resource.MustParse(pods)}, Scopes: scopes}
}

// Q4: scoped quotas, devices, and bandwidth of a space are its own, and else the defaults.
func TestQuotasOfASpaceCountMoreThanTheDefaults(t *testing.T) {
	batch, high := corev1.ResourceQuotaScopeTerminating, corev1.ResourceQuotaScopePriorityClass
	byClass := scopedQuota("high", "1")
	byClass.ScopeSelector.MatchExpressions = []v1alpha1.ScopeExpression{{ScopeName: high, Operator: corev1.ScopeSelectorOpIn, Values: []string{"high"}}}
	s, err := New(&Options{
		SpaceDefaults: v1alpha1.SpaceSpec{
			Quota:        map[corev1.ResourceName]resource.Quantity{"requests.example.com/gpu": resource.MustParse("1")},
			ScopedQuotas: []v1alpha1.ScopedQuota{scopedQuota("batch", "1", batch), scopedQuota("all", "9", batch)},
			Network:      v1alpha1.Network{PodBandwidth: v1alpha1.PodBandwidth{Ingress: v1alpha1.Bandwidth{Default: ptr.To(resource.MustParse("1M")), Max: ptr.To(resource.MustParse("10M"))}}},
		},
		Spaces: []v1alpha1.Space{space("team-a", v1alpha1.SpaceSpec{
			Quota:        map[corev1.ResourceName]resource.Quantity{"requests.hugepages-2Mi": resource.MustParse("1Gi")},
			ScopedQuotas: []v1alpha1.ScopedQuota{scopedQuota("batch", "2", batch), byClass},
			Network:      v1alpha1.Network{PodBandwidth: v1alpha1.PodBandwidth{Ingress: v1alpha1.Bandwidth{Max: ptr.To(resource.MustParse("5M"))}}},
		})},
	})
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for name, q := range s.Of("team-a").ScopedQuotas {
		got[name] = q.Hard.Pods().String()
	}
	if diff := cmp.Diff(map[string]string{"batch": "2", "all": "9", "high": "1"}, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if e := s.Of("team-a").ScopedQuotas["high"].ScopeSelector.MatchExpressions[0]; e.ScopeName != high || e.Values[0] != "high" {
		t.Errorf("the selector is %v", e)
	}
	objects := s.Objects("team-a")
	if diff := cmp.Diff(translate.Counted{"example.com/gpu", "hugepages-2Mi"}, objects.Counted); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if b := objects.Bandwidth.Ingress; b.Max.String() != "5M" || b.Default.String() != "1M" {
		t.Errorf("the bandwidth is %s by default and %s at most", b.Default, b.Max)
	}
	if other := s.Of("team-b"); len(other.ScopedQuotas) != 2 {
		t.Errorf("another space has %v", other.ScopedQuotas)
	}
}

func TestWrongScopedQuotasAndBandwidthsAreRejectedWithTheirField(t *testing.T) {
	batch := corev1.ResourceQuotaScopeTerminating
	bySelector := scopedQuota("x", "1")
	bySelector.ScopeSelector.MatchExpressions = []v1alpha1.ScopeExpression{{ScopeName: "Other", Operator: corev1.ScopeSelectorOpExists}}
	for want, spec := range map[string]v1alpha1.SpaceSpec{
		"spaces[0].spec.scopedQuotas[0].name":                                            {ScopedQuotas: []v1alpha1.ScopedQuota{scopedQuota("a.b", "1", batch)}},
		"spaces[0].spec.scopedQuotas[1].name: Duplicate value":                           {ScopedQuotas: []v1alpha1.ScopedQuota{scopedQuota("x", "1", batch), scopedQuota("x", "2", batch)}},
		"spaces[0].spec.scopedQuotas[0].hard[pods]":                                      {ScopedQuotas: []v1alpha1.ScopedQuota{scopedQuota("x", "-1", batch)}},
		"spaces[0].spec.scopedQuotas[0].scopes: Required":                                {ScopedQuotas: []v1alpha1.ScopedQuota{scopedQuota("x", "1")}},
		"spaces[0].spec.scopedQuotas[0].scopes[0]: Unsupported value":                    {ScopedQuotas: []v1alpha1.ScopedQuota{scopedQuota("x", "1", corev1.ResourceQuotaScopeVolumeAttributesClass)}},
		"spaces[0].spec.scopedQuotas[0].scopeSelector.matchExpressions[0].scopeName":     {ScopedQuotas: []v1alpha1.ScopedQuota{bySelector}},
		"spaces[0].spec.network.podBandwidth.egress.max: Invalid value: \"10\": must be": {Network: v1alpha1.Network{PodBandwidth: v1alpha1.PodBandwidth{Egress: v1alpha1.Bandwidth{Max: ptr.To(resource.MustParse("10"))}}}},
	} {
		_, err := New(&Options{Spaces: []v1alpha1.Space{space("a", spec)}})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not say %q", err, want)
		}
	}
}
