// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package translate

import (
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// AddLabels copies a pod's own labels to its host object, because selectors of services and of affinity terms match
// them there.
func (s Space) AddLabels(host *metav1.ObjectMeta, labels map[string]string) {
	for key, value := range labels {
		host.Labels[s.hostLabel(key)] = value
	}
}

// mapSelector translates a tenant's map of labels to the labels of host pods.
func (s Space) mapSelector(selector map[string]string) map[string]string {
	if selector == nil {
		return nil
	}
	out := make(map[string]string, len(selector)+2)
	for key, value := range selector {
		out[s.hostLabel(key)] = value
	}
	return out
}

// selects reports whether a selector, which an API server has validated, matches labels. The result is that of
// [metav1.LabelSelectorAsSelector]. Each pod is matched with all policies and budgets of its namespace, and parsing the
// selectors each time would take many times as long as matching them. A nil selector matches nothing.
func selects(selector *metav1.LabelSelector, of map[string]string) bool {
	if selector == nil {
		return false
	}
	for key, want := range selector.MatchLabels {
		if have, ok := of[key]; !ok || have != want {
			return false
		}
	}
	for i := range selector.MatchExpressions {
		e := &selector.MatchExpressions[i]
		have, ok := of[e.Key]
		switch e.Operator {
		case metav1.LabelSelectorOpIn:
			ok = ok && slices.Contains(e.Values, have)
		case metav1.LabelSelectorOpNotIn:
			ok = !ok || !slices.Contains(e.Values, have)
		case metav1.LabelSelectorOpExists:
		case metav1.LabelSelectorOpDoesNotExist:
			ok = !ok
		default:
			ok = false
		}
		if !ok {
			return false
		}
	}
	return true
}

// Selector restricts a tenant's selector to the host objects of this space and of these namespaces in it. A nil
// selector, which matches nothing, stays nil.
func (s Space) Selector(selector *metav1.LabelSelector, namespaces ...string) *metav1.LabelSelector {
	if selector == nil {
		return nil
	}
	out := selector.DeepCopy()
	out.MatchLabels = s.mapSelector(out.MatchLabels)
	for i := range out.MatchExpressions {
		out.MatchExpressions[i].Key = s.hostLabel(out.MatchExpressions[i].Key)
	}
	out.MatchExpressions = append(out.MatchExpressions, metav1.LabelSelectorRequirement{
		Key: LabelSpace, Operator: metav1.LabelSelectorOpIn, Values: []string{s.Name},
	})
	if len(namespaces) == 0 { // a namespace selector matched none
		return &metav1.LabelSelector{MatchExpressions: append(out.MatchExpressions, metav1.LabelSelectorRequirement{
			Key: LabelSpace, Operator: metav1.LabelSelectorOpDoesNotExist,
		})}
	}
	out.MatchExpressions = append(out.MatchExpressions, metav1.LabelSelectorRequirement{
		Key: LabelNamespace, Operator: metav1.LabelSelectorOpIn, Values: namespaces,
	})
	return out
}

// DefaultReservedLabels are the keys of pod labels on which controllers, network plugins, and admission webhooks of a
// host act; see [Settings]. Berth's own domain is always reserved.
func DefaultReservedLabels() []string {
	return []string{
		// Calico reads these as labels of the pod's namespace and service account.
		"pcns.", "pcsa.",
		// Cilium derives a pod's identity from its labels, including these.
		"io.cilium.", "io.kubernetes.",
		// Argo CD treats objects with this label as part of an application, and may delete them.
		"app.kubernetes.io/instance",
		// Berth sets this label on host objects.
		LabelManagedBy,
		// Kubernetes' own controllers, schedulers, and queues. Labels of app.kubernetes.io are informational; see
		// [Space.hostLabel].
		"kubernetes.io", "k8s.io", "x-k8s.io", "volcano.sh", "yunikorn.apache.org", "keda.sh", "knative.dev", "kubevirt.io",
		// Networks, meshes, and workload identities.
		"projectcalico.org", "cilium.io", "antrea.io", "ovn.org", "cni.cncf.io", "istio.io", "linkerd.io", "kuma.io", "hashicorp.com",
		"dapr.io", "spiffe.io", "azure.workload.identity", "azure.com", "amazonaws.com", "gke.io", "google.com", "googleapis.com",
		// Injectors, policy engines, deployment tools, and backups.
		"datadoghq.com", "dynatrace.com", "newrelic.com", "opentelemetry.io", "jaegertracing.io", "kyverno.io", "gatekeeper.sh",
		"openpolicyagent.org", "argoproj.io", "fluxcd.io", "crossplane.io", "velero.io", "cert-manager.io", "external-secrets.io",
		"openshift.io", "cattle.io", "coreos.com", "stakater.com",
	}
}

// reservedKeys are the entries of [Settings], grouped by their form.
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

// PrefixLabel is the prefix of the keys that replace reserved keys on the host.
const PrefixLabel = "label." + Domain + "/"

var defaultReserved = sync.OnceValue(func() reservedKeys { return newReservedKeys(DefaultReservedLabels()) })

// IsReservedLabel reports whether a key of a label is one of [DefaultReservedLabels].
func IsReservedLabel(key string) bool { return defaultReserved().have(key) }

// ReservesLabel reports whether pods of all spaces have another key than this on the host: it is one of [DefaultReservedLabels], or of
// [Settings.ReservedLabels].
func (s *Settings) ReservesLabel(key string) bool {
	return IsReservedLabel(key) || len(s.ReservedLabels) > 0 && newReservedKeys(s.ReservedLabels).have(key)
}

// hostLabel returns the key of a tenant's label on host pods. A reserved key is replaced by one that no other key is
// replaced by. Selectors are translated in the same way, so they select what they would in an independent cluster.
//
// By upstream's PodTopologyLabels, the host sets the zone and the region of its node as labels on each pod. A tenant's
// selectors must not match these.
func (s Space) hostLabel(key string) string {
	switch {
	case key == corev1.LabelTopologyZone:
		return Domain + "/zone"
	case key == corev1.LabelTopologyRegion:
		return Domain + "/region"
	case Owned(key), len(s.Settings.ReservedLabels) > 0 && newReservedKeys(s.Settings.ReservedLabels).have(key):
	case s.Settings.WorkloadIdentity.IsPodLabel(key): // a webhook acts on it, so only some pods have it under this key
	case strings.HasPrefix(key, "app.kubernetes.io/") && !defaultReserved().whole[key]:
		return key
	case !defaultReserved().have(key):
		return key
	}
	return PrefixLabel + Hashed(strings.ReplaceAll(key, "/", "."), LimitLabel, "label", key)
}
