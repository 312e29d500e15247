// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package translate

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"
)

// PodSecurityLevel is the Pod Security Standard that every tenant pod meets: it
// is checked here, in the space, and again by the label on the host namespace.
const PodSecurityLevel = api.LevelBaseline

// CheckPod lists what a tenant may not ask of the host with a pod (M2, M4),
// each with its field, and nothing for a pod that may be translated.
func CheckPod(meta *metav1.ObjectMeta, spec *corev1.PodSpec) field.ErrorList {
	path := field.NewPath("spec")
	errs := podSecurity(meta, spec)
	errs = append(errs, placement(path, spec)...)
	for i := range spec.Volumes {
		errs = append(errs, checkVolume(path.Child("volumes").Index(i), &spec.Volumes[i])...)
	}
	if len(spec.ResourceClaims) > 0 {
		errs = append(errs, field.Forbidden(path.Child("resourceClaims"), "devices of the host are not shared with spaces; remove the claims"))
	}
	return errs
}

// placement refuses what would choose, probe or name host nodes.
func placement(path *field.Path, spec *corev1.PodSpec) field.ErrorList {
	var errs field.ErrorList
	forbid := func(name string, set bool, remedy string) {
		if set {
			errs = append(errs, field.Forbidden(path.Child(name), remedy))
		}
	}
	const hidden = "nodes are hidden in a space; remove the field and let the host's scheduler choose"
	forbid("nodeName", spec.NodeName != "", hidden)
	forbid("nodeSelector", len(spec.NodeSelector) > 0, hidden)
	forbid("schedulerName", spec.SchedulerName != "" && spec.SchedulerName != corev1.DefaultSchedulerName,
		"only "+corev1.DefaultSchedulerName+" schedules pods of a space")
	forbid("runtimeClassName", spec.RuntimeClassName != nil, "runtime classes belong to the host; remove the field")
	forbid("priorityClassName", strings.HasPrefix(spec.PriorityClassName, "system-"), "system priorities belong to the host; use a class of your own")
	if spec.Affinity != nil {
		if spec.Affinity.NodeAffinity != nil {
			errs = append(errs, field.Forbidden(path.Child("affinity", "nodeAffinity"), hidden))
		}
	}
	return errs
}

// checkVolume lets through the volume sources that cannot reach the host: the
// ones of Pod Security's restricted level, less inline CSI volumes, whose
// drivers and handles are the host's.
func checkVolume(path *field.Path, v *corev1.Volume) field.ErrorList {
	rest := v.VolumeSource
	rest.ConfigMap, rest.Secret, rest.EmptyDir, rest.DownwardAPI = nil, nil, nil, nil
	rest.Projected, rest.PersistentVolumeClaim, rest.Ephemeral = nil, nil, nil
	var errs field.ErrorList
	if rest != (corev1.VolumeSource{}) {
		errs = append(errs, field.Forbidden(path,
			fmt.Sprintf("volume %q: a space's pods mount only configMap, secret, emptyDir, downwardAPI, projected, persistentVolumeClaim and ephemeral volumes", v.Name)))
	}
	if v.Projected != nil {
		for i, source := range v.Projected.Sources {
			kept := source
			kept.Secret, kept.ConfigMap, kept.DownwardAPI, kept.ServiceAccountToken = nil, nil, nil, nil
			if kept != (corev1.VolumeProjection{}) {
				errs = append(errs, field.Forbidden(path.Child("projected", "sources").Index(i),
					"a space's pods project only secret, configMap, downwardAPI and serviceAccountToken sources"))
			}
		}
	}
	return errs
}

// podSecurityFields names the field behind each check of upstream's baseline
// level, whose results name only the containers and volumes at fault.
func podSecurityFields(id policy.CheckID) string {
	switch id {
	case "hostNamespaces":
		return "hostNetwork, hostPID, hostIPC"
	case "hostPathVolumes":
		return "volumes[*].hostPath"
	case "hostPorts":
		return "containers[*].ports[*].hostPort"
	case "hostProbesAndhostLifecycle":
		return "containers[*].{livenessProbe,readinessProbe,startupProbe,lifecycle}.*.host"
	case "sysctls":
		return "securityContext.sysctls"
	case "privileged":
		return "containers[*].securityContext.privileged"
	case "capabilities_baseline":
		return "containers[*].securityContext.capabilities.add"
	case "procMount":
		return "containers[*].securityContext.procMount"
	case "seLinuxOptions":
		return "securityContext.seLinuxOptions"
	case "seccompProfile_baseline":
		return "securityContext.seccompProfile"
	case "windowsHostProcess":
		return "securityContext.windowsOptions.hostProcess"
	case "appArmorProfile":
		return "securityContext.appArmorProfile"
	default:
		return "securityContext"
	}
}

func podSecurity(meta *metav1.ObjectMeta, spec *corev1.PodSpec) field.ErrorList {
	var errs field.ErrorList
	for _, check := range policy.DefaultChecks() {
		if check.Level != PodSecurityLevel {
			continue
		}
		newest := check.Versions[len(check.Versions)-1]
		if r := newest.CheckPod(meta, spec); !r.Allowed {
			errs = append(errs, field.Forbidden(field.NewPath("spec", podSecurityFields(check.ID)),
				strings.TrimSpace(fmt.Sprintf("%s not allowed in a space: %s", r.ForbiddenReason, r.ForbiddenDetail))))
		}
	}
	return errs
}

// Asked is what the tenant asked of a pod that is in the space already: its
// spec less what Berth has written into it since.
func Asked(v *corev1.Pod) corev1.PodSpec {
	spec := v.Spec
	spec.NodeName = ""
	return spec
}
