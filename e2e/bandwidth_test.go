// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Q4: a pod's bandwidth goes to the host within the admin's bounds, and by default as the tenant says.
func TestPodsHaveTheBandwidthThatTheAdminAllows(t *testing.T) {
	t.Parallel()
	for bandwidth, want := range map[string]string{
		"ingress: {max: 10}":                "spaceDefaults.network.podBandwidth.ingress.max",
		"egress: {max: 10M, default: 100M}": "spaceDefaults.network.podBandwidth.egress.default: Invalid value: \"100M\": must not exceed max, which is 10M",
	} {
		_, out, code := runBerth(t, "up", "--data-dir", t.TempDir(), configured(t, "spaceDefaults: {network: {podBandwidth: {"+bandwidth+"}}}"))
		if code == 0 || !strings.Contains(out, want) {
			t.Errorf("%s: ended with %d, and %q does not say %q", bandwidth, code, out, want)
		}
	}
	b := start(t, configured(t, `
spaces:
- metadata: {name: demo}
  spec: {network: {podBandwidth: {ingress: {max: 100M, default: 10M}, egress: {max: 20M}}}}
- metadata: {name: free}`))
	host := b.host(t)
	with := func(name, ingress string) *corev1.Pod {
		return newPod(name, func(p *corev1.Pod) {
			p.Annotations = map[string]string{"example.com/other": "x"}
			if ingress != "" {
				p.Annotations["kubernetes.io/ingress-bandwidth"] = ingress
			}
		})
	}
	for _, tc := range []struct{ space, name, ingress, want string }{
		{"demo", "default", "", "10M 20M"},
		{"demo", "own", "50M", "50M 20M"},
		{"demo", "most", "0.1G", "100M 20M"},
		{"free", "default", "", " "},
		{"free", "own", "50G", "50G "},
	} {
		b.space(t, tc.space).run(t, "default", with(tc.name, tc.ingress))
		pod := must(host.CoreV1().Pods("berth-"+tc.space).Get(t.Context(), tc.space+"--default--"+tc.name, metav1.GetOptions{}))(t)
		if got := fmt.Sprintf("%s %s", pod.Annotations["kubernetes.io/ingress-bandwidth"], pod.Annotations["kubernetes.io/egress-bandwidth"]); got != tc.want {
			t.Errorf("the host pod of %s in %s has %q, want %q", tc.name, tc.space, got, tc.want)
		}
		if _, copied := pod.Annotations["example.com/other"]; copied {
			t.Errorf("other annotations of %s are on the host", tc.name)
		}
	}
	demo := b.demo(t)
	for value, want := range map[string]string{
		"101M": `metadata.annotations[kubernetes.io/ingress-bandwidth]: Invalid value: "101M": pods of this space may have at most 100M; set a lower bandwidth`,
		"fast": "must be a number of bits per second from 1k to 1P, such as 10M",
		"-1M":  "must be a number of bits per second",
		"2P":   "must be a number of bits per second",
	} {
		_, err := demo.CoreV1().Pods("default").Create(t.Context(), with("hostile", value), metav1.CreateOptions{})
		refused(t, "a bandwidth of "+value, err, want)
	}
	out, err := demo.tryKubectl(t, "", "annotate", "--overwrite", "pod", "own", "kubernetes.io/ingress-bandwidth=1G")
	if err == nil || !strings.Contains(out+err.Error(), "at most 100M") {
		t.Errorf("a pod that runs is given more: %s, %v", out, err)
	}
}
