// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package hostpolicy_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/berth-dev/berth/isolation/hostpolicy"
)

// M4 (finding S10): what an admin asks of a space's pods, the host asks of them, too.
func TestHostilePodsAreHeldToTheSpacesSettings(t *testing.T) {
	secured := &corev1.PodSecurityContext{SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}}
	local := &corev1.PodSecurityContext{
		SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeLocalhost, LocalhostProfile: ptr.To("p.json")}, SELinuxOptions: &corev1.SELinuxOptions{Level: "s0:c1"},
	}
	dropped := &corev1.SecurityContext{Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"NET_RAW"}}}
	for name, tc := range map[string]struct {
		settings string
		change   func(*corev1.PodSpec)
		refused  string
	}{
		"nothing said":            {"", func(*corev1.PodSpec) {}, ""},
		"a profile of the node's": {"", func(p *corev1.PodSpec) { p.SecurityContext = local }, "only the fields"},
		"one that is granted":     {"host-profiles", func(p *corev1.PodSpec) { p.SecurityContext = local }, ""},
		"no profile":              {"seccomp-default", func(*corev1.PodSpec) {}, "a seccompProfile in"},
		"a profile":               {"seccomp-default", func(p *corev1.PodSpec) { p.SecurityContext = secured }, ""},
		"Windows":                 {"seccomp-default", func(p *corev1.PodSpec) { p.OS = &corev1.PodOS{Name: corev1.Windows} }, ""},
		"raw packets":             {"drop-net-raw", func(*corev1.PodSpec) {}, "NET_RAW or ALL in capabilities.drop"},
		"no raw packets":          {"drop-net-raw", func(p *corev1.PodSpec) { p.Containers[0].SecurityContext = dropped }, ""},
		"raw packets in one": {"drop-net-raw", func(p *corev1.PodSpec) {
			p.Containers[0].SecurityContext, p.InitContainers = dropped, []corev1.Container{{Name: "i", Image: "i"}}
		}, "NET_RAW"},
		"root on the node":      {"user-namespaces", func(*corev1.PodSpec) {}, "hostUsers: false"},
		"a user namespace":      {"user-namespaces", func(p *corev1.PodSpec) { p.HostUsers = ptr.To(false) }, ""},
		"the node's runtime":    {"runtime-class=gvisor", func(*corev1.PodSpec) {}, "the spec.runtimeClassName that the space's admin requires"},
		"another runtime":       {"runtime-class=gvisor", func(p *corev1.PodSpec) { p.RuntimeClassName = ptr.To("runc") }, "the spec.runtimeClassName that the space's admin requires"},
		"the space's runtime":   {"runtime-class=gvisor", func(p *corev1.PodSpec) { p.RuntimeClassName = ptr.To("gvisor") }, ""},
		"a name that begins so": {"runtime-class=gvisor", func(p *corev1.PodSpec) { p.RuntimeClassName = ptr.To("gvisor,x") }, "the spec.runtimeClassName that the space's admin requires"},
		"all of it": {"drop-net-raw,runtime-class=gvisor,seccomp-default", func(p *corev1.PodSpec) {
			p.SecurityContext = secured
			p.RuntimeClassName = ptr.To("gvisor")
			p.Containers[0].SecurityContext = dropped
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEvaluator(t, hostpolicy.Pods(), map[string]string{hostpolicy.AnnotationPodSecurity: tc.settings})
			pod := podOf(1, 0, 0)
			pod.Spec.SecurityContext = nil
			tc.change(&pod.Spec)
			if message, _ := e.refuses(of("", "pods", "Pod", pod)); (tc.refused == "") != (message == "") || !strings.Contains(message, tc.refused) {
				t.Errorf("%q, want %q", message, tc.refused)
			}
		})
	}
}

// M4: an ephemeral container that joins a pod gives up what its containers had to. One that is there stays.
func TestHostileEphemeralContainersDropNetRaw(t *testing.T) {
	dropped := &corev1.SecurityContext{Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}}
	pod := func(contexts ...*corev1.SecurityContext) *corev1.Pod {
		p := podOf(1, 0, 0)
		for i, c := range contexts {
			p.Spec.EphemeralContainers = append(p.Spec.EphemeralContainers, corev1.EphemeralContainer{
				EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: string(rune('a' + i)), Image: "i", SecurityContext: c},
			})
		}
		return p
	}
	windows := pod(nil)
	windows.Spec.OS = &corev1.PodOS{Name: corev1.Windows}
	for name, tc := range map[string]struct {
		settings string
		old, is  *corev1.Pod
		refused  bool
	}{
		"keeps it":             {"drop-net-raw", pod(), pod(nil), true},
		"drops it":             {"drop-net-raw", pod(), pod(dropped), false},
		"keeps it as it was":   {"drop-net-raw", pod(nil), pod(nil, dropped), false},
		"one of two keeps it":  {"drop-net-raw", pod(dropped), pod(dropped, nil), true},
		"Windows has no such":  {"drop-net-raw", pod(), windows, false},
		"nothing is asked for": {"", pod(), pod(nil), false},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEvaluator(t, hostpolicy.Pods(), map[string]string{hostpolicy.AnnotationPodSecurity: tc.settings})
			w := of("", "pods", "Pod", tc.is)
			w.subresource, w.old = "ephemeralcontainers", tc.old
			if message, _ := e.refuses(w); (message != "") != tc.refused || tc.refused && !strings.Contains(message, "of each ephemeral container") {
				t.Errorf("%q, want it refused: %t", message, tc.refused)
			}
		})
	}
}
