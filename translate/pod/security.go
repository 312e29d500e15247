// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"fmt"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"

	"github.com/berth-dev/berth/translate"
)

// levelChecks are the checks of each level, as the newest version of the standard
// has them.
var levelChecks = sync.OnceValue(func() map[api.Level][]levelCheck {
	checks := map[api.Level][]levelCheck{}
	for _, check := range policy.DefaultChecks() {
		checks[check.Level] = append(checks[check.Level], levelCheck{check.ID, check.Versions[len(check.Versions)-1].CheckPod})
	}
	return checks
})

type levelCheck struct {
	id  policy.CheckID
	pod policy.CheckPodFn
}

// violations calls back with each check of a level, and of no lower one, that a pod
// fails.
func violations(level api.Level, meta *metav1.ObjectMeta, spec *corev1.PodSpec, visit func(policy.CheckID, policy.CheckResult)) {
	for _, check := range levelChecks()[level] {
		if result := check.pod(meta, spec); !result.Allowed {
			visit(check.id, result)
		}
	}
}

func podSecurity(meta *metav1.ObjectMeta, spec *corev1.PodSpec) field.ErrorList {
	return levelErrors(translate.PodSecurityLevel, meta, spec)
}

func levelErrors(level api.Level, meta *metav1.ObjectMeta, spec *corev1.PodSpec) field.ErrorList {
	var errs field.ErrorList
	violations(level, meta, spec, func(id policy.CheckID, r policy.CheckResult) {
		errs = append(errs, field.Forbidden(field.NewPath("spec", podSecurityFields(id)),
			strings.TrimSpace(fmt.Sprintf("%s not allowed in a space: %s", r.ForbiddenReason, r.ForbiddenDetail))))
	})
	return errs
}

// podSecurityFields names the field behind each check of upstream's levels, whose results name only the containers and volumes at fault.
func podSecurityFields(id policy.CheckID) string {
	switch id {
	case "hostNamespaces":
		return "hostNetwork, hostPID, hostIPC"
	case "hostPathVolumes":
		return "volumes[*].hostPath"
	case "hostPorts":
		return "containers[*].ports[*].hostPort"
	case "hostProbesAndHostLifecycle":
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
	case "allowPrivilegeEscalation":
		return "containers[*].securityContext.allowPrivilegeEscalation"
	case "capabilities_restricted":
		return "containers[*].securityContext.capabilities"
	case "restrictedVolumes":
		return "volumes"
	case "runAsNonRoot":
		return "securityContext.runAsNonRoot"
	case "runAsUser":
		return "securityContext.runAsUser"
	case "seccompProfile_restricted":
		return "securityContext.seccompProfile"
	default:
		return "securityContext"
	}
}

// weaken clears from a host pod each field by which it fails a check: a pod that
// slipped by [Check] is not to count on the host's own checks. The other
// checks are about fields that no host pod has.
func weaken(host *corev1.Pod) {
	violations(translate.PodSecurityLevel, &host.ObjectMeta, &host.Spec, func(id policy.CheckID, _ policy.CheckResult) {
		if id == "sysctls" {
			host.Spec.SecurityContext.Sysctls = nil
		}
		if pod := host.Spec.SecurityContext; pod != nil {
			profiles := &corev1.SecurityContext{
				SELinuxOptions: pod.SELinuxOptions, SeccompProfile: pod.SeccompProfile,
				AppArmorProfile: pod.AppArmorProfile, WindowsOptions: pod.WindowsOptions,
			}
			weakenContext(profiles, id)
			pod.SELinuxOptions, pod.SeccompProfile = profiles.SELinuxOptions, profiles.SeccompProfile
			pod.AppArmorProfile, pod.WindowsOptions = profiles.AppArmorProfile, profiles.WindowsOptions
		}
		eachContainer(&host.Spec, func(c *corev1.Container) {
			switch id {
			case "hostPorts":
				for i := range c.Ports {
					c.Ports[i].HostPort, c.Ports[i].HostIP = 0, ""
				}
			case "hostProbesAndHostLifecycle":
				clearHandlerHosts(c)
			}
			if c.SecurityContext != nil {
				weakenContext(c.SecurityContext, id)
			}
		})
	})
	windowsOptions(nil, &host.Spec, func(_ *field.Path, o *corev1.WindowsSecurityContextOptions) {
		o.GMSACredentialSpecName, o.GMSACredentialSpec = nil, nil
	})
}

func weakenContext(sc *corev1.SecurityContext, id policy.CheckID) {
	switch id {
	case "privileged":
		sc.Privileged = nil
	case "capabilities_baseline":
		if sc.Capabilities != nil {
			sc.Capabilities.Add = nil
		}
	case "procMount":
		sc.ProcMount = nil
	case "seLinuxOptions":
		sc.SELinuxOptions = nil
	case "seccompProfile_baseline":
		sc.SeccompProfile = nil
	case "appArmorProfile":
		sc.AppArmorProfile = nil
	case "windowsHostProcess":
		sc.WindowsOptions = nil
	}
}

func clearHandlerHosts(c *corev1.Container) {
	handler := func(get *corev1.HTTPGetAction, socket *corev1.TCPSocketAction) {
		if get != nil {
			get.Host = ""
		}
		if socket != nil {
			socket.Host = ""
		}
	}
	for _, probe := range []*corev1.Probe{c.LivenessProbe, c.ReadinessProbe, c.StartupProbe} {
		if probe != nil {
			handler(probe.HTTPGet, probe.TCPSocket)
		}
	}
	if c.Lifecycle != nil {
		for _, hook := range []*corev1.LifecycleHandler{c.Lifecycle.PostStart, c.Lifecycle.PreStop} {
			if hook != nil {
				handler(hook.HTTPGet, hook.TCPSocket)
			}
		}
	}
}

// windowsOptions are all of a pod's, with the paths of their fields.
func windowsOptions(path *field.Path, spec *corev1.PodSpec, visit func(*field.Path, *corev1.WindowsSecurityContextOptions)) {
	if sc := spec.SecurityContext; sc != nil && sc.WindowsOptions != nil {
		visit(path.Child("securityContext", "windowsOptions"), sc.WindowsOptions)
	}
	eachContainerAt(path, spec, func(path *field.Path, c *corev1.Container) {
		if sc := c.SecurityContext; sc != nil && sc.WindowsOptions != nil {
			visit(path.Child("securityContext", "windowsOptions"), sc.WindowsOptions)
		}
	})
}
