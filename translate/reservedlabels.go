// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package translate

import (
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
)

// DefaultReservedLabels are the keys of pods' labels by which controllers, network
// plugins, and admission webhooks of a host are steered: see
// [Settings]. Berth's own domain is always reserved.
func DefaultReservedLabels() []string {
	return []string{
		// Calico takes these for labels of the pod's namespace, and of its service account.
		"pcns.", "pcsa.",
		// Cilium derives a pod's identity from its labels, these among them.
		"io.cilium.", "io.kubernetes.",
		// Argo CD takes what has this label for part of an application, and may prune it.
		"app.kubernetes.io/instance",
		// Berth's own on host objects.
		LabelManagedBy,
		// Kubernetes' own controllers, schedulers and queues. Labels of app.kubernetes.io
		// are for people, see [Space.hostLabel].
		"kubernetes.io", "k8s.io", "x-k8s.io", "volcano.sh", "yunikorn.apache.org", "keda.sh", "knative.dev", "kubevirt.io",
		// Networks, meshes, and workload identities.
		"projectcalico.org", "cilium.io", "antrea.io", "ovn.org", "cni.cncf.io", "istio.io", "linkerd.io", "kuma.io", "hashicorp.com",
		"dapr.io", "spiffe.io", "azure.workload.identity", "azure.com", "amazonaws.com", "gke.io", "google.com", "googleapis.com",
		// Injectors, policies, deployers, and backups.
		"datadoghq.com", "dynatrace.com", "newrelic.com", "opentelemetry.io", "jaegertracing.io", "kyverno.io", "gatekeeper.sh",
		"openpolicyagent.org", "argoproj.io", "fluxcd.io", "crossplane.io", "velero.io", "cert-manager.io", "external-secrets.io",
		"openshift.io", "cattle.io", "coreos.com", "stakater.com",
	}
}

// reservedKeys are entries of [Settings], by their form.
type reservedKeys struct {
	domains, whole map[string]bool
	prefixes       []string
}

func newReservedKeys(entries []string) reservedKeys {
	r := reservedKeys{domains: map[string]bool{}, whole: map[string]bool{}}
	for _, entry := range entries {
		switch {
		case strings.HasSuffix(entry, "."):
			r.prefixes = append(r.prefixes, entry)
		case strings.Contains(entry, "/"):
			r.whole[entry] = true
		default:
			r.domains[entry] = true
		}
	}
	return r
}

func (r reservedKeys) have(key string) bool {
	if r.whole[key] {
		return true
	}
	for _, prefix := range r.prefixes {
		if strings.HasPrefix(key, prefix) {
			return true
		}
	}
	domain, _, found := strings.Cut(key, "/")
	for found {
		if r.domains[domain] {
			return true
		}
		_, domain, found = strings.Cut(domain, ".")
	}
	return false
}

// PrefixLabel begins the keys under which the host has labels that it must not have under their own.
const PrefixLabel = "label." + Domain + "/"

var defaultReserved = sync.OnceValue(func() reservedKeys { return newReservedKeys(DefaultReservedLabels()) })

// hostLabel is the key on host pods of a tenant's label. One that is reserved gets
// another, which no other key gets. Selectors are translated in the same way: they
// select what they would in a cluster of the space's own.
//
// A host tells each pod, by labels of upstream's names, the zone and the region of
// its node (upstream's PodTopologyLabels): a tenant's selectors must not be able to
// ask for them.
func (s Space) hostLabel(key string) string {
	switch {
	case key == corev1.LabelTopologyZone:
		return Domain + "/zone"
	case key == corev1.LabelTopologyRegion:
		return Domain + "/region"
	case Owned(key), len(s.Settings.ReservedLabels) > 0 && newReservedKeys(s.Settings.ReservedLabels).have(key):
	case strings.HasPrefix(key, "app.kubernetes.io/") && !defaultReserved().whole[key]:
		return key
	case !defaultReserved().have(key):
		return key
	}
	return PrefixLabel + Hashed(strings.ReplaceAll(key, "/", "."), LimitLabel, "label", key)
}
