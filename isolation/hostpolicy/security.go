// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package hostpolicy

import (
	"cmp"
	"slices"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/berth-dev/berth/translate"
)

// Settings of a space's pods, as [AnnotationPodSecurity] lists them: see
// translate.PodSecurity.
const (
	// HostProfiles grants seccomp and AppArmor profiles that are files of the nodes, and
	// types and levels of SELinux. A pod of the same level as another's shares its files.
	HostProfiles = "host-profiles"
	// SeccompDefault asks for a seccomp profile of each pod.
	SeccompDefault = "seccomp-default"
	// DropNetRaw asks that each container gives up NET_RAW.
	DropNetRaw = "drop-net-raw"
	// UserNamespaces asks that each pod runs in a user namespace.
	UserNamespaces = "user-namespaces"
	// RuntimeClass begins the setting that asks for a runtime class of each pod.
	RuntimeClass = "runtime-class="
)

// PodSecurity are the settings that [AnnotationPodSecurity] lists for a space.
func PodSecurity(p translate.PodSecurity) (list []string) {
	for setting, on := range map[string]bool{
		HostProfiles: p.HostProfiles, DropNetRaw: p.DropNetRaw, UserNamespaces: p.UserNamespaces, RuntimeClass + p.RuntimeClass: p.RuntimeClass != "",
		SeccompDefault: cmp.Or(p.Seccomp, corev1.SeccompProfileTypeRuntimeDefault) == corev1.SeccompProfileTypeRuntimeDefault,
	} {
		if on {
			list = append(list, setting)
		}
	}
	slices.Sort(list)
	return list
}

func granted(setting string) string { return says("security", "'"+setting+"'") }

func podSecurity() []admissionv1.Validation {
	const created = "has(request.subResource) || oldObject != null || object == null || "
	const drops = "c.?securityContext.?capabilities.?drop.orValue([]).exists(d, d in ['ALL', 'NET_RAW'])"
	const forced = "('" + RuntimeClass + "' + object.spec.?runtimeClassName.orValue(''))"
	return []admissionv1.Validation{
		Refuse("a space's pods must have the spec.runtimeClassName that the space's admin requires",
			created+"variables.security.all(s, !s.startsWith('"+RuntimeClass+"') || s == "+forced+")"),
		Refuse("a space's pods must have what the space's admin requires: a seccompProfile in spec.securityContext, hostUsers: false, or NET_RAW or ALL in capabilities.drop of each container",
			created+"(!("+granted(UserNamespaces)+") || object.spec.?hostUsers.orValue(true) == false) && (object.spec.?os.?name.orValue('') == 'windows' || (!("+granted(SeccompDefault)+") || has(object.spec.securityContext) && has(object.spec.securityContext.seccompProfile)) && "+
				"(!("+granted(DropNetRaw)+") || (object.spec.containers + object.spec.?initContainers.orValue([])).all(c, "+drops+")))"),
		Refuse("the space's admin requires NET_RAW or ALL in capabilities.drop of each ephemeral container, too",
			"!has(request.subResource) || request.subResource != 'ephemeralcontainers' || !("+granted(DropNetRaw)+") || object.spec.?os.?name.orValue('') == 'windows' || "+
				"object.spec.?ephemeralContainers.orValue([]).all(c, c in oldObject.spec.?ephemeralContainers.orValue([]) || "+drops+")"),
	}
}
