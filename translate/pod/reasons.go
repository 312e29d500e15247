// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// noDetails takes the place of a message that is not known to be about the tenant's
// own pod alone. Kubelets' messages tell what a node has, what all tenants use of
// it, and which mirrors it pulls from; the reason beside the message stays.
const noDetails = "the host gives no details"

// own is a message of a kind that speaks of the pod alone. What a runtime or a
// driver says is quoted as an error of its interface, and may be anything.
func (r *scrubber) own(message string) string {
	if strings.Contains(message, "rpc error") {
		return noDetails
	}
	return r.scrub(message)
}

// podMessage is what the space hears, in a pod's status or in an event, of why the
// pod as a whole ended.
func (r *scrubber) podMessage(reason, message string) string {
	switch {
	case message == "":
		return ""
	case reason == "Evicted":
		return evictionReason(message)
	case strings.HasPrefix(reason, "OutOf"):
		return "the node that was selected for the pod had no capacity for it"
	}
	switch reason {
	case "DeadlineExceeded":
		return r.own(message)
	case "NodeShutdown", "Shutdown", "Terminated":
		return "the node of the pod shut down"
	case "NodeLost":
		return "the node of the pod does not respond"
	case "Preempting", "Preempted", corev1.PodReasonPreemptionByScheduler:
		return "the pod was preempted by a pod with a higher priority"
	case corev1.PodReasonTerminationByKubelet:
		return "the node of the pod terminated it"
	case "DeletionByTaintManager":
		return "the node of the pod doesn't accept pods of the space now"
	case "DeletionByPodGC":
		return "the node of the pod was deleted"
	case "EvictionByEvictionAPI":
		return "the pod was evicted"
	default:
		return noDetails
	}
}

var (
	lowOn = regexp.MustCompile(`^The node was low on resource: (memory|ephemeral-storage|inodes|pids)\b`)
	// ownLimit is what kubelets say of a pod that went beyond a limit of its own.
	ownLimit = regexp.MustCompile(`^(Pod ephemeral local storage usage exceeds the total limit of containers [0-9.]+[a-zA-Z]*` +
		`|Container [-a-z0-9]+ exceeded its local ephemeral storage limit "[0-9.]+[a-zA-Z]*"` +
		`|Usage of EmptyDir volume "[-a-z0-9]+" exceeds the limit "[0-9.]+[a-zA-Z]*")\.? *$`)
)

func evictionReason(message string) string {
	if ownLimit.MatchString(message) {
		return message
	}
	if found := lowOn.FindStringSubmatch(message); found != nil {
		return "the node of the pod was low on " + found[1]
	}
	return "the node of the pod evicted it"
}

// conditionMessage is that of a pod's condition.
func (r *scrubber) conditionMessage(reason, message string) string {
	switch reason {
	case "ContainersNotReady", "ContainersNotInitialized", "ReadinessGatesNotReady", "UnknownContainerStatuses", "PodCompleted", "PodFailed":
		return r.own(message)
	default:
		return r.podMessage(reason, message)
	}
}

// waitingMessage says why a container waits.
func (r *scrubber) waitingMessage(reason, message string, v *corev1.Pod) string {
	switch reason {
	case "CrashLoopBackOff", "ContainerCreating", "PodInitializing", "ErrImageNeverPull", "InvalidImageName":
		return r.own(message)
	case "ErrImagePull", "ImagePullBackOff", "RegistryUnavailable", "SignatureValidationFailed":
		if message == "" {
			return ""
		}
		return pullReason(message, v)
	default:
		return r.containerReason(message)
	}
}

// terminatedMessage says how a container ended. Words that a process leaves may be
// data.
func (r *scrubber) terminatedMessage(reason, message string) string {
	switch reason {
	case "Completed", "Error", "OOMKilled":
		return r.scrubNames(message)
	case "ContainerStatusUnknown", "DeadlineExceeded":
		return r.own(message)
	default:
		return r.containerReason(message)
	}
}

var (
	missingKeyIn = regexp.MustCompile(`couldn't find key ([-._a-zA-Z0-9]+) in (ConfigMap|Secret) [^/\s]+/([-.a-z0-9]+)`)
	notStarted   = regexp.MustCompile(`unable to start container process:.*(exec: "(?:[^"\\]|\\.){1,256}": (?:stat \S+: )?(?:executable file not found in \$PATH|permission denied|no such file or directory|is a directory))`)
	workingDir   = regexp.MustCompile(`chdir to cwd \("([^"]{1,256})"\)`)
	nonRoot      = regexp.MustCompile(`container has runAsNonRoot and image will run as root|container's runAsUser breaks non-root policy|container has runAsNonRoot and image has non-numeric user \([-._a-zA-Z0-9]+\), cannot verify user is non-root`)
	plainError   = regexp.MustCompile(`^Error: [A-Za-z]+$`)
)

// containerReason says why a container could not be made or started, in what is
// the tenant's of a runtime's message.
func (r *scrubber) containerReason(message string) string {
	if message == "" || plainError.MatchString(message) {
		return message
	}
	if found := notFound.FindStringSubmatch(message); found != nil {
		if name, known := r.known(found[2]); known {
			return found[1] + ` "` + name + `" not found`
		}
	}
	if found := missingKeyIn.FindStringSubmatch(message); found != nil {
		if name, known := r.known(found[3]); known {
			return "couldn't find key " + found[1] + " in " + found[2] + ` "` + name + `"`
		}
	}
	if found := notStarted.FindStringSubmatch(message); found != nil {
		return "the container could not be started: " + found[1]
	}
	if found := workingDir.FindStringSubmatch(message); found != nil {
		return `the container could not be started: its working directory "` + found[1] + `" can't be entered`
	}
	if found := nonRoot.FindString(message); found != "" {
		return found
	}
	return "the host could not start a container of the pod; it retries"
}

var quotedImage = regexp.MustCompile(`image "([^"]+)"`)

// pullReason says why an image could not be pulled. A node may pull from mirrors and
// caches, which its runtime's message names.
func pullReason(message string, v *corev1.Pod) string {
	what := "an image of the pod"
	if found := quotedImage.FindStringSubmatch(message); found != nil && slices.Contains(images(v), found[1]) {
		what = `image "` + found[1] + `"`
	}
	causes := []struct{ means, says string }{
		{"its name is not valid", "invalid reference format|couldn't parse image name"},
		{"the image does not support the node's platform", "no match for platform"},
		{"the registry limits how often images are pulled", "toomanyrequests|429 Too Many Requests"},
		{"the registry does not allow it; name a secret for it in imagePullSecrets", "unauthorized|authentication required|401 |403 |denied|insufficient_scope|authorization failed"},
		{"the registry does not have it", "not found|manifest unknown|404 "},
		{"the registry's name does not resolve", "no such host"},
		{"the registry's certificate is not trusted", "x509|tls: "},
		{"the registry can't be reached", "connection refused|i/o timeout|deadline exceeded|connection reset|no route to host|network is unreachable|EOF"},
	}
	for _, c := range causes {
		for says := range strings.SplitSeq(c.says, "|") {
			if strings.Contains(message, says) {
				return "the host could not pull " + what + ": " + c.means
			}
		}
	}
	return "the host could not pull " + what + "; it retries"
}

func images(v *corev1.Pod) (names []string) {
	eachContainer(&v.Spec, func(c *corev1.Container) { names = append(names, c.Image) })
	for i := range v.Spec.Volumes {
		if image := v.Spec.Volumes[i].Image; image != nil {
			names = append(names, image.Reference)
		}
	}
	return names
}
