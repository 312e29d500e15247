// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package pod_test

import (
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	"github.com/berth-dev/berth/translate"
	"github.com/berth-dev/berth/translate/pod"
	"github.com/berth-dev/berth/translate/sample"
)

// Q4: a host pod has the bandwidth that its tenant asks for, within the admin's bounds, also one that slipped by the check.
func TestBandwidthsGoToTheHostWithinBounds(t *testing.T) {
	bound := func(usual, most string) (b translate.Bandwidth) {
		if usual != "" {
			b.Default = ptr.To(resource.MustParse(usual))
		}
		if most != "" {
			b.Max = ptr.To(resource.MustParse(most))
		}
		return b
	}
	for name, tc := range map[string]struct {
		bound   translate.Bandwidth
		asked   string
		want    string
		refused bool
	}{
		"nothing":                       {},
		"any":                           {asked: "3G", want: "3G"},
		"the least":                     {asked: "1k", want: "1k"},
		"the most":                      {asked: "1P", want: "1P"},
		"too little":                    {asked: "999", refused: true},
		"too much":                      {asked: "1000000000000001", refused: true},
		"no number":                     {asked: "fast", refused: true},
		"takes hours to parse":          {asked: "1e-2000000000", refused: true},
		"takes hours to compare":        {asked: "1e2000000000", refused: true},
		"negative":                      {asked: "-10M", refused: true},
		"the default":                   {bound: bound("10M", "20M"), want: "10M"},
		"the maximum without a default": {bound: bound("", "20M"), want: "20M"},
		"a default above the maximum":   {bound: bound("30M", "20M"), want: "20M"},
		"within":                        {bound: bound("10M", "20M"), asked: "15M", want: "15M"},
		"beyond":                        {bound: bound("10M", "20M"), asked: "21M", want: "20M", refused: true},
		"no number within bounds":       {bound: bound("10M", "20M"), asked: "fast", want: "10M", refused: true},
	} {
		t.Run(name, func(t *testing.T) {
			space, v := sample.Demo(), sample.PlainPod()
			space.Settings.Bandwidth.Egress = tc.bound
			if tc.asked != "" {
				v.Annotations = map[string]string{pod.AnnotationEgressBandwidth: tc.asked}
			}
			if errs := pod.CheckSettings(&space.Settings, &v.ObjectMeta, &v.Spec); (len(errs) > 0) != tc.refused {
				t.Errorf("refused: %v", errs)
			}
			host := pod.ToHost(space, v, sample.Surroundings{})
			if got := host.Annotations[pod.AnnotationEgressBandwidth]; got != tc.want {
				t.Errorf("the host pod has %q, want %q", got, tc.want)
			}
			if _, other := host.Annotations[pod.AnnotationIngressBandwidth]; other {
				t.Error("the other direction is bounded, too")
			}
		})
	}
}
