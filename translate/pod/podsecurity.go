// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"cmp"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/pod-security-admission/api"
	"k8s.io/utils/ptr"

	"github.com/berth-dev/berth/translate"
)

// CheckSettings lists what a tenant may not ask for in a space with these settings, each with its field.
func CheckSettings(s *translate.Settings, meta *metav1.ObjectMeta, spec *corev1.PodSpec) field.ErrorList {
	return slices.Concat(checkSecurity(s.PodSecurity, meta, spec), checkResources(s, field.NewPath("spec"), spec), checkBandwidth(s.Bandwidth, meta))
}

func checkSecurity(p translate.PodSecurity, meta *metav1.ObjectMeta, spec *corev1.PodSpec) (errs field.ErrorList) {
	if p.Level == api.LevelRestricted {
		errs = levelErrors(api.LevelRestricted, meta, spec)
	}
	path := field.NewPath("spec")
	if class := spec.RuntimeClassName; p.RuntimeClass != "" && class != nil && *class != p.RuntimeClass {
		errs = append(errs, field.Forbidden(path.Child("runtimeClassName"), fmt.Sprintf("all pods of this space use the runtime class %s; remove the field", p.RuntimeClass)))
	}
	if p.UserNamespaces && ptr.Deref(spec.HostUsers, false) {
		errs = append(errs, field.Forbidden(path.Child("hostUsers"), "all pods of this space run in a user namespace; remove the field"))
	}
	if p.HostProfiles {
		return errs
	}
	eachProfiles(path, spec, func(path *field.Path, of *profiles) {
		errs = append(errs, of.check(path)...)
	})
	return errs
}

// secure makes a host pod that is about to be made what the space's pods must be.
func secure(p translate.PodSecurity, spec *corev1.PodSpec) {
	if !p.HostProfiles {
		eachProfiles(nil, spec, func(_ *field.Path, of *profiles) { of.clear() })
	}
	if p.UserNamespaces {
		spec.HostUsers = ptr.To(false)
	}
	if spec.OS != nil && spec.OS.Name == corev1.Windows { // which has none of these
		return
	}
	if cmp.Or(p.Seccomp, corev1.SeccompProfileTypeRuntimeDefault) == corev1.SeccompProfileTypeRuntimeDefault {
		if spec.SecurityContext == nil {
			spec.SecurityContext = &corev1.PodSecurityContext{}
		}
		if spec.SecurityContext.SeccompProfile == nil {
			spec.SecurityContext.SeccompProfile = &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}
		}
	}
	if p.DropNetRaw {
		eachContainer(spec, dropNetRaw)
	}
}

func dropNetRaw(c *corev1.Container) {
	if c.SecurityContext == nil {
		c.SecurityContext = &corev1.SecurityContext{}
	}
	if c.SecurityContext.Capabilities == nil {
		c.SecurityContext.Capabilities = &corev1.Capabilities{}
	}
	if drop := &c.SecurityContext.Capabilities.Drop; !slices.Contains(*drop, "ALL") && !slices.Contains(*drop, "NET_RAW") {
		*drop = append(*drop, "NET_RAW")
	}
}

// profiles are the fields of a pod's or a container's security context that name
// what the host's nodes have.
type profiles struct {
	seccomp  **corev1.SeccompProfile
	appArmor **corev1.AppArmorProfile
	seLinux  **corev1.SELinuxOptions
}

func eachProfiles(path *field.Path, spec *corev1.PodSpec, visit func(*field.Path, *profiles)) {
	if sc := spec.SecurityContext; sc != nil {
		visit(path.Child("securityContext"), &profiles{&sc.SeccompProfile, &sc.AppArmorProfile, &sc.SELinuxOptions})
	}
	eachContainerAt(path, spec, func(path *field.Path, c *corev1.Container) {
		if sc := c.SecurityContext; sc != nil {
			visit(path.Child("securityContext"), &profiles{&sc.SeccompProfile, &sc.AppArmorProfile, &sc.SELinuxOptions})
		}
	})
}

func (p *profiles) check(path *field.Path) (errs field.ErrorList) {
	forbid := func(set bool, remedy string, name string, more ...string) {
		if set {
			errs = append(errs, field.Forbidden(path.Child(name, more...), remedy))
		}
	}
	const file = "profiles on the host's nodes are hidden from spaces; use RuntimeDefault"
	if s := *p.seccomp; s != nil {
		forbid(s.Type == corev1.SeccompProfileTypeLocalhost, file, "seccompProfile", "type")
		forbid(s.LocalhostProfile != nil, file, "seccompProfile", "localhostProfile")
	}
	if a := *p.appArmor; a != nil {
		forbid(a.Type == corev1.AppArmorProfileTypeLocalhost, file, "appArmorProfile", "type")
		forbid(a.LocalhostProfile != nil, file, "appArmorProfile", "localhostProfile")
	}
	if l := *p.seLinux; l != nil {
		const label = "the node's container runtime sets the label to isolate pods from each other; remove the field"
		forbid(l.User != "", label, "seLinuxOptions", "user")
		forbid(l.Role != "", label, "seLinuxOptions", "role")
		forbid(l.Type != "", label, "seLinuxOptions", "type")
		forbid(l.Level != "", label, "seLinuxOptions", "level")
	}
	return errs
}

// clear takes away what [profiles.check] refuses.
func (p *profiles) clear() {
	if s := *p.seccomp; s != nil && (s.Type == corev1.SeccompProfileTypeLocalhost || s.LocalhostProfile != nil) {
		*p.seccomp = nil
	}
	if a := *p.appArmor; a != nil && (a.Type == corev1.AppArmorProfileTypeLocalhost || a.LocalhostProfile != nil) {
		*p.appArmor = nil
	}
	if l := *p.seLinux; l != nil && *l != (corev1.SELinuxOptions{}) {
		*p.seLinux = nil
	}
}
