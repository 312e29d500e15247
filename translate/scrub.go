// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package translate

import (
	"cmp"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Scrub rewrites a message of the host's about host, so that it speaks of the
// virtual pod v and names neither the host's object nor its node (N1).
func (s Space) Scrub(message string, v, host *corev1.Pod) string {
	return s.replacer(v, host).Replace(message)
}

func (s Space) replacer(v, host *corev1.Pod) *strings.Replacer {
	pairs := [][2]string{
		{host.Name, v.Name},
		{string(host.UID), string(v.UID)},
		{s.HostNamespace(), v.Namespace},
		{host.Spec.NodeName, s.PseudoNode(host.Spec.NodeName)},
		{host.Status.NominatedNodeName, s.PseudoNode(host.Status.NominatedNodeName)},
		{host.Status.HostIP, s.PseudoNode(host.Spec.NodeName)},
		{s.TokenSecretName(v.Namespace, v.Name), "service account token"},
	}
	for _, ip := range host.Status.HostIPs {
		pairs = append(pairs, [2]string{ip.IP, s.PseudoNode(host.Spec.NodeName)})
	}
	// Whatever else the pod refers to is named as the space names it.
	refs := PodReferences(v)
	for _, ref := range append(refs.ConfigMaps, refs.Secrets...) {
		pairs = append(pairs, [2]string{s.HostName(v.Namespace, ref.Name, LimitSubdomain), ref.Name})
	}
	for _, volume := range v.Spec.Volumes {
		if claim := volume.PersistentVolumeClaim; claim != nil {
			pairs = append(pairs, [2]string{s.HostName(v.Namespace, claim.ClaimName, LimitSubdomain), claim.ClaimName})
		}
	}
	return newReplacer(pairs)
}

// newReplacer replaces longer names first, so that none is cut by another.
func newReplacer(pairs [][2]string) *strings.Replacer {
	pairs = slices.DeleteFunc(pairs, func(p [2]string) bool { return p[0] == "" })
	slices.SortStableFunc(pairs, func(a, b [2]string) int { return cmp.Compare(len(b[0]), len(a[0])) })
	flat := make([]string, 0, 2*len(pairs))
	for _, p := range pairs {
		flat = append(flat, p[0], p[1])
	}
	return strings.NewReplacer(flat...)
}

var insufficient = regexp.MustCompile(`Insufficient ([A-Za-z0-9./_-]+)`)

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
		add("insufficient " + strings.TrimRight(match[1], "."))
	}
	phrases := []struct{ says, means string }{
		{"Too many pods", "too many pods"},
		{"pod affinity rules", "the pod's affinity rules are not met"},
		{"pod anti-affinity rules", "the pod's anti-affinity rules are not met"},
		{"topology spread constraints", "the pod's topology spread constraints are not met"},
		{"volume node affinity conflict", "the pod's volumes are not in one place"},
		{"unbound immediate PersistentVolumeClaims", "a volume claim of the pod is not bound yet"},
		{"persistentvolumeclaim", "a volume claim of the pod is missing or not bound yet"},
		{"free ports", "a port is taken"},
	}
	for _, p := range phrases {
		if strings.Contains(message, p.says) {
			add(p.means)
		}
	}
	if len(reasons) == 0 {
		return "the pod does not fit now; it is tried again"
	}
	return "the pod does not fit now: " + strings.Join(reasons, ", ")
}

// ScrubNames rewrites a message of the host's about v's host object, so that it
// names v instead.
func (s Space) ScrubNames(message string, v metav1.Object) string {
	return newReplacer([][2]string{
		{s.HostName(v.GetNamespace(), v.GetName(), LimitSubdomain), v.GetName()},
		{s.HostName(v.GetNamespace(), v.GetName(), LimitLabel), v.GetName()},
		{s.HostNamespace(), v.GetNamespace()},
	}).Replace(message)
}
