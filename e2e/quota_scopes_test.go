// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// Q4: a tenant's own quotas with scopes hold in its space as upstream's do.
func TestScopesOfATenantsQuotasAreUpstreams(t *testing.T) {
	t.Parallel()
	demo := sharedBerth(t).demo(t)
	namespace := demo.namespace(t, "scopes")
	must(demo.SchedulingV1().PriorityClasses().Create(t.Context(), &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "scopes-high"}, Value: 10}, metav1.CreateOptions{}))(t)
	high := func(p *corev1.Pod) { p.Spec.PriorityClassName = "scopes-high" }
	requests := func(p *corev1.Pod) {
		p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("10m")}
	}
	deadline := func(p *corev1.Pod) { p.Spec.ActiveDeadlineSeconds = ptr.To(int64(3600)) }
	elsewhere := func(p *corev1.Pod) {
		p.Spec.Affinity = &corev1.Affinity{PodAffinity: &corev1.PodAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{{Weight: 1, PodAffinityTerm: corev1.PodAffinityTerm{
			LabelSelector: &metav1.LabelSelector{}, NamespaceSelector: &metav1.LabelSelector{}, TopologyKey: corev1.LabelHostname,
		}}}}}
	}
	for name, spec := range map[string]corev1.ResourceQuotaSpec{
		"best-effort": {Scopes: []corev1.ResourceQuotaScope{corev1.ResourceQuotaScopeBestEffort}},
		"terminating": {Scopes: []corev1.ResourceQuotaScope{corev1.ResourceQuotaScopeTerminating, corev1.ResourceQuotaScopeNotBestEffort}},
		"across":      {Scopes: []corev1.ResourceQuotaScope{corev1.ResourceQuotaScopeCrossNamespacePodAffinity}},
		"high": {ScopeSelector: &corev1.ScopeSelector{MatchExpressions: []corev1.ScopedResourceSelectorRequirement{
			{ScopeName: corev1.ResourceQuotaScopePriorityClass, Operator: corev1.ScopeSelectorOpIn, Values: []string{"scopes-high"}},
		}}},
	} {
		spec.Hard = corev1.ResourceList{corev1.ResourcePods: resource.MustParse("1")}
		must(demo.CoreV1().ResourceQuotas(namespace).Create(t.Context(), &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}, metav1.CreateOptions{}))(t)
		await(t, demo.CoreV1().ResourceQuotas(namespace).Get, name, func(q *corev1.ResourceQuota) error { return expect("hard limits in the status", len(q.Status.Hard), 1) })
	}
	for name, of := range map[string][]func(*corev1.Pod){
		"best-effort": nil, "terminating": {requests, deadline}, "across": {requests, elsewhere}, "high": {requests, high},
	} {
		pods := demo.CoreV1().Pods(namespace)
		must(pods.Create(t.Context(), newPod(name, of...), metav1.CreateOptions{}))(t)
		_, err := pods.Create(t.Context(), newPod(name+"-more", of...), metav1.CreateOptions{})
		refused(t, "a pod beyond the quota "+name, err, "exceeded quota: "+name+", requested: pods=1, used: pods=1, limited: pods=1")
	}
	demo.run(t, namespace, newPod("of-no-quota", requests))
	// A quota of claims by their attributes is kept, and counts none: claims have no such class in a space.
	claims := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "fast"}, Spec: corev1.ResourceQuotaSpec{
		Hard: corev1.ResourceList{corev1.ResourcePersistentVolumeClaims: resource.MustParse("1")},
		ScopeSelector: &corev1.ScopeSelector{MatchExpressions: []corev1.ScopedResourceSelectorRequirement{
			{ScopeName: corev1.ResourceQuotaScopeVolumeAttributesClass, Operator: corev1.ScopeSelectorOpExists},
		}},
	}}
	must(demo.CoreV1().ResourceQuotas(namespace).Create(t.Context(), claims, metav1.CreateOptions{}))(t)
}

// Q4, Q3, S21: an admin's scoped quotas of a space are on the host, hold there, are put back, and go with their entry in the spec.
func TestAnAdminSetsScopedQuotas(t *testing.T) {
	t.Parallel()
	b := start(t, configured(t, `
spaceDefaults:
  scopedQuotas: [{name: long, hard: {pods: "2"}, scopes: [NotTerminating]}]
spaces:
- metadata: {name: demo}
  spec: {scopedQuotas: [{name: batch, hard: {pods: "1"}, scopes: [Terminating]}]}`))
	demo, host := b.demo(t), b.host(t)
	hard := func(name, want string) {
		t.Helper()
		await(t, host.CoreV1().ResourceQuotas(hostNamespace).Get, name, func(q *corev1.ResourceQuota) error {
			pods := q.Status.Hard[corev1.ResourcePods]
			return expect("pods of "+name, pods.String(), want)
		})
	}
	hard("berth-batch", "1")
	hard("berth-long", "2")
	deadline := func(p *corev1.Pod) { p.Spec.ActiveDeadlineSeconds = ptr.To(int64(3600)) }
	demo.run(t, "default", newPod("batch-1", deadline))
	demo.run(t, "default", newPod("web-1"))
	if _, err := demo.CoreV1().Pods("default").Create(t.Context(), newPod("batch-2", deadline), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	demo.awaitMessage(t, "exceeded quota: berth-batch", "pods=1")
	demo.run(t, "default", newPod("web-2")) // of the other scope, it does not wait for it

	host.kubectl(t, "delete", "resourcequota", "-n", hostNamespace, "berth-batch")
	hard("berth-batch", "1")
	host.kubectl(t, "patch", "resourcequota", "-n", hostNamespace, "berth-long", "--type=merge", "--patch", `{"spec": {"hard": {"pods": "100"}}}`)
	hard("berth-long", "2")

	host.kubectl(t, "create", "quota", "mine", "-n", hostNamespace, "--hard=pods=1000")
	host.kubectl(t, "patch", "space", "demo", "--type=merge", "--patch", `{"spec": {"scopedQuotas": [{"name": "long", "hard": {"pods": "3"}, "scopes": ["NotBestEffort"]}]}}`)
	awaitGone(t, "quota", host.CoreV1().ResourceQuotas(hostNamespace).Get, "berth-batch")
	hard("berth-long", "3")
	hard("mine", "1k")
	if scopes := host.kubectl(t, "get", "resourcequota", "-n", hostNamespace, "berth-long", "-o", "jsonpath={.spec.scopes}"); scopes != `["NotBestEffort"]` {
		t.Errorf("the scopes are %s", scopes)
	}

	for patch, want := range map[string]string{
		`[{"name": "x", "hard": {"pods": "1"}}]`:                                                                                                        "a scoped quota needs scopes or a scopeSelector",
		`[{"name": "x", "hard": {"pods": "1"}, "scopes": ["CrossNamespacePodAffinity"]}]`:                                                               "spec.scopedQuotas[0].scopes[0]",
		`[{"name": "a.b", "hard": {"pods": "1"}, "scopes": ["Terminating"]}]`:                                                                           "spec.scopedQuotas[0].name",
		`[{"name": "x", "hard": {"pods": "1"}, "scopeSelector": {"matchExpressions": [{"scopeName": "VolumeAttributesClass", "operator": "Exists"}]}}]`: "scopeName: Unsupported value",
	} {
		out, err := host.tryKubectl(t, "", "patch", "space", "demo", "--type=merge", "--patch", `{"spec": {"scopedQuotas": `+patch+`}}`)
		if err == nil {
			t.Errorf("%s is taken", patch)
			continue
		}
		if !strings.Contains(out+err.Error(), want) {
			t.Errorf("%s: %s %v does not say %q", patch, out, err, want)
		}
	}
}
