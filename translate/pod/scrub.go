// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berth-dev/berth/translate"
)

// Scrub rewrites a message of the host's about host, so that it speaks of the
// virtual pod v and names neither the host's object nor its node (N1).
func Scrub(s translate.Space, message string, v, host *corev1.Pod) string {
	return podScrubber(s, v, host).scrub(message)
}

// ScrubNames rewrites a message of the host's about v's host object, so that it
// names v instead, and no address of the host's. more are pairs of what else the
// host's object names, and what it is called in the space.
func ScrubNames(s translate.Space, message string, v metav1.Object, more ...[2]string) string {
	return newScrubber(append([][2]string{
		{s.HostName(v.GetNamespace(), v.GetName(), translate.LimitSubdomain), v.GetName()},
		{s.HostName(v.GetNamespace(), v.GetName(), translate.LimitLabel), v.GetName()},
		{s.HostNamespace(), v.GetNamespace()},
	}, more...)).scrub(message)
}

func podScrubber(s translate.Space, v, host *corev1.Pod) *scrubber {
	pairs := [][2]string{
		{host.Name, v.Name},
		{string(host.UID), string(v.UID)},
		{s.HostNamespace(), v.Namespace},
		{host.Spec.NodeName, s.NodeAlias(host.Spec.NodeName)},
		{host.Status.NominatedNodeName, s.NodeAlias(host.Status.NominatedNodeName)},
		{s.TokenSecretName(v.Namespace, v.Name), "service account token"},
	}
	// Whatever else the pod refers to is named as the space names it.
	refs := ReferencesOf(v)
	for _, ref := range append(refs.ConfigMaps, refs.Secrets...) {
		pairs = append(pairs, [2]string{s.HostName(v.Namespace, ref.Name, translate.LimitSubdomain), ref.Name})
	}
	for i := range v.Spec.Volumes {
		if claim := claimName(v, &v.Spec.Volumes[i]); claim != "" {
			pairs = append(pairs, [2]string{s.HostName(v.Namespace, claim, translate.LimitSubdomain), claim})
		}
	}
	out := newScrubber(pairs)
	if host.Spec.NodeName != "" {
		out.tell(s.NodeAlias(host.Spec.NodeName), host.Spec.NodeName, host.Status.HostIP)
		for _, ip := range host.Status.HostIPs {
			out.tell(s.NodeAlias(host.Spec.NodeName), ip.IP)
		}
	}
	out.tell("", s.Nameservers...)
	out.tell("", host.Status.PodIP)
	for _, ip := range host.Status.PodIPs {
		out.tell("", ip.IP)
	}
	return out
}

var insufficient = regexp.MustCompile(`Insufficient ([A-Za-z0-9](?:[A-Za-z0-9./_-]*[A-Za-z0-9])?)`)

// SchedulingReason says why the host's scheduler could not place a pod, in
// phrases that are the same on every cluster: its own message counts nodes and
// quotes their labels and taints.
func SchedulingReason(message string) string {
	var reasons []string
	add := func(reason string) {
		if !slices.Contains(reasons, reason) {
			reasons = append(reasons, reason)
		}
	}
	for _, match := range insufficient.FindAllStringSubmatch(message, -1) {
		add("insufficient " + match[1])
	}
	phrases := []struct{ says, means string }{
		{"Too many pods", "too many pods"},
		{"pod affinity rules", "the pod's affinity rules are not met"},
		{"pod anti-affinity rules", "the pod's anti-affinity rules are not met"},
		{"topology spread constraints", "the pod's topology spread constraints are not met"},
		{"volume node affinity conflict", "the pod's volumes are not in one place"},
		{"unbound immediate PersistentVolumeClaims", "a volume claim of the pod is not bound yet"},
		{"persistentvolumeclaim", "a volume claim of the pod is missing or not bound yet"},
		{"cannot allocate all claims", "no devices are left for a resource claim of the pod"},
		{"resourceclaim", "a resource claim of the pod is missing, or is in use"},
		{"device class", "a device class of a resource claim doesn't exist"},
		{"free ports", "a port is taken"},
	}
	for _, p := range phrases {
		if strings.Contains(message, p.says) {
			add(p.means)
		}
	}
	if len(reasons) == 0 {
		return "no node fits the pod now; the host retries"
	}
	return "no node fits the pod now: " + strings.Join(reasons, ", ")
}
