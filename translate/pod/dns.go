// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/berth-dev/berth/translate"
)

// What an API server takes in a pod's DNS config. A kubelet, too, cuts what it
// composes to these.
const (
	maxNameservers  = 3
	maxSearches     = 32
	maxSearchLength = 2048 // of all, with a space between each
)

// dns is what v's containers find in their resolv.conf: what a kubelet of a
// cluster of the space's own would write there. It is spelled out, as the
// host's kubelet knows the host's names and servers only.
func dns(s translate.Space, v *corev1.Pod) (corev1.DNSPolicy, *corev1.PodDNSConfig) {
	policy, config := v.Spec.DNSPolicy, v.Spec.DNSConfig.DeepCopy()
	clusterFirst := policy == "" || policy == corev1.DNSClusterFirst || policy == corev1.DNSClusterFirstWithHostNet
	if !clusterFirst || len(s.Nameservers) == 0 {
		return policy, config
	}
	domain := s.ClusterDomain
	if domain == "" {
		domain = "cluster.local"
	}
	if config == nil {
		config = &corev1.PodDNSConfig{}
	}
	config.Nameservers = upTo(maxNameservers, append(slices.Clone(s.Nameservers), config.Nameservers...))
	searches := upTo(maxSearches, append([]string{v.Namespace + ".svc." + domain, "svc." + domain, domain}, config.Searches...))
	for len(strings.Join(searches, " ")) > maxSearchLength {
		searches = searches[:len(searches)-1]
	}
	config.Searches = searches
	if !slices.ContainsFunc(config.Options, func(o corev1.PodDNSConfigOption) bool { return o.Name == "ndots" }) {
		config.Options = append(config.Options, corev1.PodDNSConfigOption{Name: "ndots", Value: ptr.To("5")})
	}
	return corev1.DNSNone, config
}

// upTo is all without repetitions, and no more than limit of them.
func upTo(limit int, all []string) []string {
	var out []string
	for _, item := range all {
		if len(out) < limit && !slices.Contains(out, item) {
			out = append(out, item)
		}
	}
	return out
}

// hostnameOverride is the host pod's: the tenant's own, or the full name of a
// pod that asks for it as its hostname, which the host's kubelet would make with
// the host's namespace. A full name that is too long for a kernel is left out.
//
// A subdomain alone goes not down for the same reason: it is for the space's DNS.
func hostnameOverride(s translate.Space, v *corev1.Pod) *string {
	if own := v.Spec.HostnameOverride; own != nil {
		return ptr.To(*own)
	}
	if !ptr.Deref(v.Spec.SetHostnameAsFQDN, false) || v.Spec.Subdomain == "" {
		return nil
	}
	domain := s.ClusterDomain
	if domain == "" {
		domain = "cluster.local"
	}
	full := strings.Join([]string{hostname(v), v.Spec.Subdomain, v.Namespace, "svc", domain}, ".")
	if len(full) > maxHostname {
		return nil
	}
	return &full
}

// maxHostname is the longest hostname that a kernel takes, in bytes.
const maxHostname = 64

// hostname is the one that a kubelet would give the pod in a cluster of its
// own; the host pod's name would show the space's.
func hostname(v *corev1.Pod) string {
	if v.Spec.Hostname != "" {
		return v.Spec.Hostname
	}
	name := strings.ReplaceAll(v.Name, ".", "-")
	if len(name) > translate.LimitLabel {
		name = name[:translate.LimitLabel]
	}
	return strings.TrimRight(name, "-")
}
