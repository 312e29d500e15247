// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package access

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// AnnotationKept on a namespace lists the labels and annotations that Berth keeps, so that they are removed with the setting.
const AnnotationKept = "berth.dev/kept-metadata"

// IsTenants reports whether a namespace is one of the tenant's: not one of those that each space begins with.
func IsTenants(namespace string) bool { return namespace != "" && !isInitial(namespace) }

func isInitial(namespace string) bool {
	switch namespace {
	case metav1.NamespaceDefault, metav1.NamespaceSystem, metav1.NamespacePublic, corev1.NamespaceNodeLease:
		return true
	}
	return false
}

// LimitRanges returns those of each namespace of the space, without a namespace.
func (r *Rules) LimitRanges() []*corev1.LimitRange {
	all := make([]*corev1.LimitRange, len(r.state.Namespaces.LimitRanges))
	for i, spec := range r.state.Namespaces.LimitRanges {
		all[i] = &corev1.LimitRange{ObjectMeta: r.numbered(i), Spec: spec}
	}
	return all
}

// NetworkPolicies returns those of each namespace of the space, without a namespace.
func (r *Rules) NetworkPolicies() []*networkingv1.NetworkPolicy {
	all := make([]*networkingv1.NetworkPolicy, len(r.state.Namespaces.NetworkPolicies))
	for i, spec := range r.state.Namespaces.NetworkPolicies {
		all[i] = &networkingv1.NetworkPolicy{ObjectMeta: r.numbered(i), Spec: spec}
	}
	return all
}

func (r *Rules) numbered(i int) metav1.ObjectMeta {
	tenant := r.state.TenantName()
	return metav1.ObjectMeta{Name: "berth-" + tenant + "-" + strconv.Itoa(i), Labels: map[string]string{LabelTenant: tenant}}
}

// kept is the value of [AnnotationKept].
type kept struct {
	Labels      []string `json:"labels,omitempty"`
	Annotations []string `json:"annotations,omitempty"`
}

// KeepMetadata sets the labels and annotations that a namespace has by the state, and removes those that it had by an earlier one.
// It reports whether it changed anything. Namespaces that are not the tenant's are left alone. A new one may have no name yet.
func (r *Rules) KeepMetadata(namespace metav1.Object) bool {
	if isInitial(namespace.GetName()) {
		return false
	}
	labels, annotations := namespace.GetLabels(), namespace.GetAnnotations()
	was := keptOf(annotations)
	n := &r.state.Namespaces
	now := kept{slices.Sorted(maps.Keys(n.Labels)), slices.Sorted(maps.Keys(n.Annotations))}
	newLabels, newAnnotations := replace(labels, was.Labels, n.Labels), replace(annotations, was.Annotations, n.Annotations)
	delete(newAnnotations, AnnotationKept)
	if len(now.Labels)+len(now.Annotations) > 0 {
		text, err := json.Marshal(now)
		if err != nil {
			return false // strings always have a form
		}
		newAnnotations[AnnotationKept] = string(text)
	}
	if maps.Equal(labels, newLabels) && maps.Equal(annotations, newAnnotations) {
		return false
	}
	namespace.SetLabels(newLabels)
	namespace.SetAnnotations(newAnnotations)
	return true
}

// replace returns a copy of all, without the entries of the keys, and with those of set.
func replace(all map[string]string, keys []string, set map[string]string) map[string]string {
	replaced := make(map[string]string, len(all)+len(set))
	maps.Copy(replaced, all)
	for _, key := range keys {
		delete(replaced, key)
	}
	maps.Copy(replaced, set)
	return replaced
}

func keptOf(annotations map[string]string) (k kept) {
	if err := json.Unmarshal([]byte(annotations[AnnotationKept]), &k); err != nil {
		return kept{}
	}
	return k
}

// CheckMetadata refuses a change of what Berth keeps of a namespace's labels and annotations.
func CheckMetadata(old, object metav1.Object) error {
	if old.GetAnnotations()[AnnotationKept] != object.GetAnnotations()[AnnotationKept] {
		return fmt.Errorf("metadata.annotations[%s]: it is set by Berth; leave it as it is", AnnotationKept)
	}
	k := keptOf(old.GetAnnotations())
	if key, ok := changed(k.Labels, old.GetLabels(), object.GetLabels()); ok {
		return fmt.Errorf("metadata.labels[%s]: the administrator of the platform sets it for all namespaces of the tenant; leave it at %q", key, old.GetLabels()[key])
	}
	if key, ok := changed(k.Annotations, old.GetAnnotations(), object.GetAnnotations()); ok {
		return fmt.Errorf("metadata.annotations[%s]: the administrator of the platform sets it for all namespaces of the tenant; leave it at %q", key, old.GetAnnotations()[key])
	}
	return nil
}

func changed(keys []string, old, now map[string]string) (string, bool) {
	for _, key := range keys {
		was, had := old[key]
		is, has := now[key]
		if was != is || had != has {
			return key, true
		}
	}
	return "", false
}

// CheckQuota refuses one more namespace of the tenant's if there are used ones already. Its message has the form of upstream's for
// quotas.
func (r *Rules) CheckQuota(namespace string, used int64) error {
	quota := r.state.Namespaces.Quota
	if quota == nil || !IsTenants(namespace) || used < int64(*quota) {
		return nil
	}
	return fmt.Errorf("exceeded quota: tenant %s, requested: namespaces=1, used: namespaces=%d, limited: namespaces=%d; "+
		"delete a namespace, or ask the administrator of the platform for a higher namespace quota", r.state.TenantName(), used, *quota)
}
