// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package hostpolicy_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	"github.com/berth-dev/berth/isolation/hostpolicy"
	"github.com/berth-dev/berth/translate"
	"github.com/berth-dev/berth/translate/pod"
)

// Q4: a stolen account gives no pod more bandwidth than the space's admin allows: neither by an annotation nor without one, by no
// update, and not by one of the status.
func TestHostilePodsAreHeldToTheirBandwidth(t *testing.T) {
	const bound, in, out, pods = "100M", pod.AnnotationIngressBandwidth, pod.AnnotationEgressBandwidth, "within the maximums"
	one := func(values ...string) map[string]string {
		annotations := map[string]string{"berth.dev/name": "web"}
		for i := 0; i < len(values); i += 2 {
			annotations[values[i]] = values[i+1]
		}
		return annotations
	}
	most := ptr.To(resource.MustParse(bound))
	for name, tc := range map[string]struct {
		bounds   translate.PodBandwidth
		old, new map[string]string
		sub      string
		refused  string
	}{
		"without bounds":               {new: one()},
		"any, without bounds":          {new: one(in, "10G", out, "1k")},
		"no quantity":                  {new: one(in, "fast"), refused: "only metadata"},
		"another annotation":           {new: one("kubernetes.io/other-bandwidth", "1k"), refused: "only metadata"},
		"within":                       {bounds: translate.PodBandwidth{Ingress: translate.Bandwidth{Max: most}}, new: one(in, "0.1G")},
		"beyond":                       {bounds: translate.PodBandwidth{Ingress: translate.Bandwidth{Max: most}}, new: one(in, "101M"), refused: pods},
		"none":                         {bounds: translate.PodBandwidth{Ingress: translate.Bandwidth{Max: most}}, new: one(out, "1k"), refused: pods},
		"one of two":                   {bounds: translate.PodBandwidth{Ingress: translate.Bandwidth{Max: most}, Egress: translate.Bandwidth{Max: most}}, new: one(in, "1M"), refused: pods},
		"both":                         {bounds: translate.PodBandwidth{Ingress: translate.Bandwidth{Max: most}, Egress: translate.Bandwidth{Max: most}}, new: one(in, "1M", out, "100M")},
		"an update to more":            {bounds: translate.PodBandwidth{Egress: translate.Bandwidth{Max: most}}, old: one(out, "1M"), new: one(out, "1G"), refused: pods},
		"an update of the status":      {bounds: translate.PodBandwidth{Egress: translate.Bandwidth{Max: most}}, old: one(out, "1M"), new: one(out, "1G"), sub: "status", refused: pods},
		"an update to none":            {bounds: translate.PodBandwidth{Egress: translate.Bandwidth{Max: most}}, old: one(out, "1M"), new: one(), refused: pods},
		"what it had before the bound": {bounds: translate.PodBandwidth{Egress: translate.Bandwidth{Max: most}}, old: one(out, "1G"), new: one(out, "1G")},
		"none, as before the bound":    {bounds: translate.PodBandwidth{Egress: translate.Bandwidth{Max: most}}, old: one(), new: one()},
		"an update to what is allowed": {bounds: translate.PodBandwidth{Egress: translate.Bandwidth{Max: most}}, old: one(out, "1G"), new: one(out, "100M")},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEvaluator(t, hostpolicy.Pods(), map[string]string{hostpolicy.AnnotationPodBandwidth: strings.Join(hostpolicy.PodBandwidth(tc.bounds), ",")})
			made := func(annotations map[string]string) *corev1.Pod {
				p := podOf(1, 0, 0)
				p.Annotations = annotations
				return p
			}
			w := of("", "pods", "Pod", made(tc.new))
			w.subresource = tc.sub
			if tc.old != nil {
				w.old = made(tc.old)
			}
			if message, _ := e.refuses(w); (tc.refused == "") != (message == "") || !strings.Contains(message, tc.refused) {
				t.Errorf("%q, want %q", message, tc.refused)
			}
		})
	}
}
