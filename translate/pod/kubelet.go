// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// kubeletMessage is what the space hears of a kubelet's message about v. Those that
// speak of the pod alone pass, scrubbed. Others quote storage and network drivers,
// runtimes, or the node's settings and figures, which may name anything of the
// host's: of these, only what is known to be the tenant's is kept. Of a reason that
// is not known here, no word is.
func (r *scrubber) kubeletMessage(reason, message string, v *corev1.Pod) string {
	switch reason {
	case "FailedMount", "FailedMapVolume", "FailedAttachVolume", "FailedMountOnFilesystemMismatch":
		return r.mountReason(message, v)
	case "SuccessfulMountVolume", "AlreadyMountedVolume":
		return "a volume of the pod is mounted"
	case "VolumePermissionChangeInProgress":
		return "the ownership of the files in a volume of the pod is being set; this takes long for many files"
	case "VolumeResizeFailed", "FileSystemResizeFailed":
		return "the host could not resize a volume of the pod; it retries"
	case "VolumeResizeSuccessful", "FileSystemResizeSuccessful":
		return "the host resized a volume of the pod"
	case "FailedCreatePodSandBox", "FailedPodSandBoxStatus":
		return "the host could not create the pod's sandbox; it retries"
	case "FailedCreatePodContainer", "FailedPrepareDynamicResources", "FailedSync", "FailedValidation", "FailedNodeDeclaredFeaturesCheck":
		return "the host could not update the pod; it retries"
	case "FailedKillPod":
		return "the host could not stop the pod; it retries"
	case "NetworkNotReady":
		return "the host's network is not ready yet"
	case "DNSConfigForming":
		return "the pod's DNS settings exceed the limits; some were omitted"
	case "MissingClusterDNS":
		return "the host has no DNS server for pods; the pod uses the DNS settings of its node"
	case "Created", "Started", "Killing", "ExceededGracePeriod", "Pulling", "Pulled", "ErrImageNeverPull", "FailedToRetrieveImagePullSecret",
		"InvalidEnvironmentVariableNames", "SandboxChanged", "Unhealthy", "ProbeWarning", "FailedPostStartHook", "FailedPreStopHook":
		return r.own(message)
	case "BackOff":
		if strings.HasPrefix(message, "Back-off pulling") {
			return pullReason(message, v)
		}
		return r.own(message)
	case "Failed":
		if strings.HasPrefix(message, "Failed to pull image") {
			return pullReason(message, v)
		}
		return r.containerReason(message)
	case "InspectFailed":
		return pullReason(message, v)
	case "ResizeDeferred":
		return resizeReason(corev1.PodReasonDeferred)
	case "ResizeInfeasible":
		return resizeReason(corev1.PodReasonInfeasible)
	case "ResizeStarted":
		return "the pod is being resized"
	case "ResizeCompleted":
		return "the pod was resized"
	case "ResizeError":
		return "the host could not resize the pod; it retries"
	default:
		return r.podMessage(reason, message)
	}
}

var (
	notFound   = regexp.MustCompile(`(configmap|secret|persistentvolumeclaim) "([^"]+)" not found`)
	missingKey = regexp.MustCompile(`references non-existent (?:secret|config) key: [-._a-zA-Z0-9]+`)
	unmounted  = regexp.MustCompile(`unmounted volumes=\[([^\]]*)\]`)
)

// mountReason says why volumes of v are not mounted, in names of the tenant's:
// the rest of such a message is a driver's, down to servers and handles.
func (r *scrubber) mountReason(message string, v *corev1.Pod) string {
	var reasons []string
	add := func(reason string) {
		if !slices.Contains(reasons, reason) {
			reasons = append(reasons, reason)
		}
	}
	for _, match := range notFound.FindAllStringSubmatch(message, -1) {
		if name, known := r.known(match[2]); known {
			add(match[1] + ` "` + name + `" not found`)
		}
	}
	if match := missingKey.FindString(message); match != "" {
		add(match)
	}
	if match := unmounted.FindStringSubmatch(message); match != nil {
		for _, name := range strings.FieldsFunc(match[1], func(c rune) bool { return c == ' ' || c == ',' }) {
			if slices.ContainsFunc(v.Spec.Volumes, func(volume corev1.Volume) bool { return volume.Name == name }) {
				add("volume " + name + " is not mounted yet")
			}
		}
	}
	if len(reasons) == 0 {
		return "the host could not mount a volume of the pod; it retries"
	}
	return "the host could not mount a volume of the pod: " + strings.Join(reasons, ", ")
}

// known is what the tenant calls an object of the host's.
func (r *scrubber) known(hostName string) (string, bool) {
	if at, found := r.find(hostName); found {
		return r.names[at][1], true
	}
	return "", false
}
