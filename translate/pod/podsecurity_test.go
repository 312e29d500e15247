// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package pod_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/pod-security-admission/api"
	"k8s.io/utils/ptr"

	"github.com/berth-dev/berth/translate"
	"github.com/berth-dev/berth/translate/pod"
	"github.com/berth-dev/berth/translate/sample"
)

// M4 (S10): what of the nodes' a pod may name, and what a space's pods must be, is
// the admin's to say; by default the nodes' profiles and labels are not named.
func TestHostileSecurityContextsAreRefused(t *testing.T) {
	localhost := &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeLocalhost, LocalhostProfile: ptr.To("profiles/node.json")}
	inPod := func(change func(*corev1.PodSecurityContext)) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Spec.SecurityContext = &corev1.PodSecurityContext{}
			change(p.Spec.SecurityContext)
		}
	}
	inContainer := func(change func(*corev1.SecurityContext)) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Spec.InitContainers = []corev1.Container{{Name: "i", SecurityContext: &corev1.SecurityContext{}}}
			change(p.Spec.InitContainers[0].SecurityContext)
		}
	}
	cases := map[string]struct {
		change   func(*corev1.Pod)
		security translate.PodSecurity
		want     []string // fields
	}{
		"Seccomp":          {inPod(func(s *corev1.PodSecurityContext) { s.SeccompProfile = localhost }), translate.PodSecurity{}, []string{"spec.securityContext.seccompProfile.type", "spec.securityContext.seccompProfile.localhostProfile"}},
		"ContainerSeccomp": {inContainer(func(s *corev1.SecurityContext) { s.SeccompProfile = localhost }), translate.PodSecurity{}, []string{"spec.initContainers[0].securityContext.seccompProfile.type", "spec.initContainers[0].securityContext.seccompProfile.localhostProfile"}},
		"AppArmor": {inContainer(func(s *corev1.SecurityContext) {
			s.AppArmorProfile = &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeLocalhost}
		}), translate.PodSecurity{}, []string{"spec.initContainers[0].securityContext.appArmorProfile.type"}},
		"SELinux": {inPod(func(s *corev1.PodSecurityContext) {
			s.SELinuxOptions = &corev1.SELinuxOptions{Type: "container_t", Level: "s0:c1,c2"}
		}), translate.PodSecurity{}, []string{"spec.securityContext.seLinuxOptions.type", "spec.securityContext.seLinuxOptions.level"}},
		"Allowed":    {inPod(func(s *corev1.PodSecurityContext) { s.SeccompProfile = localhost }), translate.PodSecurity{HostProfiles: true}, nil},
		"OtherClass": {func(p *corev1.Pod) { p.Spec.RuntimeClassName = ptr.To("runc") }, translate.PodSecurity{RuntimeClass: "gvisor"}, []string{"spec.runtimeClassName"}},
		"Class":      {func(p *corev1.Pod) { p.Spec.RuntimeClassName = ptr.To("gvisor") }, translate.PodSecurity{RuntimeClass: "gvisor"}, nil},
		"HostUsers":  {func(p *corev1.Pod) { p.Spec.HostUsers = ptr.To(true) }, translate.PodSecurity{UserNamespaces: true}, []string{"spec.hostUsers"}},
		"AnyClass":   {func(p *corev1.Pod) { p.Spec.RuntimeClassName, p.Spec.HostUsers = ptr.To("runc"), ptr.To(true) }, translate.PodSecurity{}, nil},
		"Baseline":   {func(*corev1.Pod) {}, translate.PodSecurity{}, nil},
		"NotRestricted": {func(*corev1.Pod) {}, translate.PodSecurity{Level: api.LevelRestricted}, []string{
			"spec.containers[*].securityContext.allowPrivilegeEscalation", "spec.containers[*].securityContext.capabilities", "spec.securityContext.runAsNonRoot", "spec.securityContext.seccompProfile",
		}},
		"Restricted": {func(p *corev1.Pod) {
			p.Spec.SecurityContext = &corev1.PodSecurityContext{RunAsNonRoot: ptr.To(true), SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}}
			p.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{AllowPrivilegeEscalation: ptr.To(false), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}}
		}, translate.PodSecurity{Level: api.LevelRestricted}, nil},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			v := sample.PlainPod()
			tc.change(v)
			var got []string
			for _, e := range pod.CheckSettings(&translate.Settings{PodSecurity: tc.security}, &v.ObjectMeta, &v.Spec) {
				got = append(got, e.Field)
			}
			slices.Sort(got)
			slices.Sort(tc.want)
			if !slices.Equal(got, tc.want) {
				t.Errorf("refused are %q, want %q", got, tc.want)
			}
			space := sample.Demo()
			space.Settings.PodSecurity = tc.security
			text := fmt.Sprint(pod.ToHost(space, v, sample.Surroundings{}).Spec.String())
			if allowed := tc.security.HostProfiles; strings.Contains(text, "node.json") != allowed || strings.Contains(text, "s0:c1") {
				t.Errorf("the host pod names what is the node's: %s", text)
			}
		})
	}
}

// M4 (S10): what a pod does not set, the host pod does.
func TestHostPodsAreAsSecureAsTheAdminSays(t *testing.T) {
	with := func(p translate.PodSecurity, change func(*corev1.Pod)) corev1.PodSpec {
		v := sample.PlainPod()
		change(v)
		space := sample.Demo()
		space.Settings.PodSecurity = p
		return pod.ToHost(space, v, sample.Surroundings{}).Spec
	}
	none := func(*corev1.Pod) {}
	if spec := with(translate.PodSecurity{}, none); spec.SecurityContext == nil || spec.SecurityContext.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault ||
		spec.HostUsers != nil || spec.Containers[0].SecurityContext != nil {
		t.Errorf("by default: %v", spec)
	}
	if spec := with(translate.PodSecurity{Seccomp: corev1.SeccompProfileTypeUnconfined}, none); spec.SecurityContext != nil {
		t.Errorf("no default profile: %v", spec.SecurityContext)
	}
	windows := func(p *corev1.Pod) { p.Spec.OS = &corev1.PodOS{Name: corev1.Windows} }
	if spec := with(translate.PodSecurity{DropNetRaw: true}, windows); spec.SecurityContext != nil || spec.Containers[0].SecurityContext != nil {
		t.Errorf("on Windows: %v", spec)
	}
	spec := with(translate.PodSecurity{UserNamespaces: true, DropNetRaw: true}, func(p *corev1.Pod) {
		p.Spec.InitContainers = []corev1.Container{
			{Name: "all", SecurityContext: &corev1.SecurityContext{Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}}},
			{Name: "some", SecurityContext: &corev1.SecurityContext{Capabilities: &corev1.Capabilities{Add: []corev1.Capability{"CHOWN"}, Drop: []corev1.Capability{"KILL"}}}},
		}
	})
	drops := func(c *corev1.Container) string { return fmt.Sprint(c.SecurityContext.Capabilities.Drop) }
	if *spec.HostUsers || drops(&spec.Containers[0]) != "[NET_RAW]" || drops(&spec.InitContainers[0]) != "[ALL]" || drops(&spec.InitContainers[1]) != "[KILL NET_RAW]" {
		t.Errorf("with everything: %v", spec)
	}
}
