// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package counts_test

import (
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/kubernetes/pkg/apis/apps"
	"k8s.io/kubernetes/pkg/apis/authorization"
	"k8s.io/kubernetes/pkg/apis/autoscaling"
	"k8s.io/kubernetes/pkg/apis/batch"
	"k8s.io/kubernetes/pkg/apis/certificates"
	"k8s.io/kubernetes/pkg/apis/core"
	"k8s.io/kubernetes/pkg/apis/networking"
	"k8s.io/kubernetes/pkg/apis/policy"
	"k8s.io/kubernetes/pkg/apis/rbac"
	resourceapi "k8s.io/kubernetes/pkg/apis/resource"
	"k8s.io/kubernetes/pkg/apis/storage"

	"github.com/berth-dev/berth/bounds"
	"github.com/berth-dev/berth/vcluster/counts"
)

func texts(n int) []string {
	var all []string
	for i := range n {
		all = append(all, strconv.Itoa(i))
	}
	return all
}

func spec(ports, items int) core.PodSpec {
	volumes := []core.Volume{
		{VolumeSource: core.VolumeSource{Secret: &core.SecretVolumeSource{Items: make([]core.KeyToPath, items/2)}}},
		{VolumeSource: core.VolumeSource{Projected: &core.ProjectedVolumeSource{Sources: []core.VolumeProjection{{ConfigMap: &core.ConfigMapProjection{Items: make([]core.KeyToPath, items-items/2-min(1, items))}}}}}},
	}
	if items == 0 {
		volumes = nil
	}
	return core.PodSpec{
		Containers: []core.Container{{Ports: make([]core.ContainerPort, ports/2)}}, InitContainers: []core.Container{{Ports: make([]core.ContainerPort, ports-ports/2)}}, Volumes: volumes,
	}
}

func template(bytes int) core.PodTemplateSpec {
	return core.PodTemplateSpec{Spec: core.PodSpec{Containers: []core.Container{{Args: []string{strings.Repeat("x", bytes)}}}}}
}

func rule(groups, resources, verbs, names int) rbac.PolicyRule {
	return rbac.PolicyRule{APIGroups: texts(groups), Resources: texts(resources), Verbs: texts(verbs), ResourceNames: texts(names)}
}

// L3: a pod of 60 KB had the API server make 7 GiB of warnings, and a role of 6 KB as many rules to compare. What is at the limit is
// taken, what is beyond is not, unless it was there before.
func TestHostileNumbersAreBounded(t *testing.T) {
	for quantity, of := range map[bounds.Quantity]func(n int) runtime.Object{
		bounds.PodPorts: func(n int) runtime.Object { return &core.Pod{Spec: spec(n, 0)} },
		bounds.PodResources: func(n int) runtime.Object {
			names := core.ResourceList{}
			for _, t := range texts(n / 10) {
				names[core.ResourceName(t)] = resource.Quantity{}
			}
			all := slices.Repeat([]core.Container{{Resources: core.ResourceRequirements{Requests: names, Limits: names}}}, 3)
			return &core.Pod{Spec: core.PodSpec{Containers: all[:2], InitContainers: all}}
		},
		bounds.VolumeItems: func(n int) runtime.Object {
			return &apps.Deployment{Spec: apps.DeploymentSpec{Template: core.PodTemplateSpec{Spec: spec(0, n)}}}
		},
		bounds.TemplateBytes: func(n int) runtime.Object {
			return &batch.CronJob{Spec: batch.CronJobSpec{JobTemplate: batch.JobTemplateSpec{Spec: batch.JobSpec{Template: template(n - 1000)}}}}
		},
		bounds.SelectorTerms: func(n int) runtime.Object {
			return &networking.NetworkPolicy{Spec: networking.NetworkPolicySpec{PodSelector: metav1.LabelSelector{
				MatchLabels: map[string]string{"a": "b"}, MatchExpressions: []metav1.LabelSelectorRequirement{{Values: texts(n - 2)}},
			}}}
		},
		bounds.WorkloadSelectorBytes: func(n int) runtime.Object {
			return &apps.Deployment{Spec: apps.DeploymentSpec{Selector: &metav1.LabelSelector{
				MatchLabels: map[string]string{"a": "b"}, MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "c", Values: []string{strings.Repeat("d", n-3-3*16)}}},
			}}}
		},
		bounds.RoleRules: func(n int) runtime.Object {
			return &rbac.Role{Rules: slices.Repeat([]rbac.PolicyRule{rule(1, 1, 1, 0)}, n)}
		},
		bounds.RoleCombinations: func(n int) runtime.Object {
			return &rbac.ClusterRole{Rules: []rbac.PolicyRule{rule(10, n/100, 5, 2), {NonResourceURLs: texts(n % 100), Verbs: texts(1)}}}
		},
		bounds.AggregationSelectors: func(n int) runtime.Object {
			return &rbac.ClusterRole{AggregationRule: &rbac.AggregationRule{ClusterRoleSelectors: make([]metav1.LabelSelector, n)}}
		},
		bounds.OwnerReferences: func(n int) runtime.Object {
			u := &unstructured.Unstructured{Object: map[string]any{}}
			u.SetOwnerReferences(make([]metav1.OwnerReference, n))
			return u
		},
		bounds.ObjectLabels: func(n int) runtime.Object {
			u := &unstructured.Unstructured{Object: map[string]any{}}
			many := map[string]string{}
			for _, t := range texts(n) {
				many[t] = ""
			}
			if n%2 == 0 {
				u.SetLabels(many)
			} else {
				u.SetAnnotations(many)
			}
			return u
		},
		bounds.IdentityGroups: func(n int) runtime.Object {
			return &authorization.LocalSubjectAccessReview{Spec: authorization.SubjectAccessReviewSpec{
				Groups: texts(n - 1), Extra: map[string]authorization.ExtraValue{"a": {"b"}},
			}}
		},
		bounds.QuotaNames: func(n int) runtime.Object {
			names := core.ResourceList{}
			for _, t := range texts(n - 10) {
				names[core.ResourceName(t)] = resource.Quantity{}
			}
			if n == bounds.QuotaNames.Max() {
				return &core.LimitRange{Spec: core.LimitRangeSpec{Limits: append(make([]core.LimitRangeItem, 9), core.LimitRangeItem{DefaultRequest: names})}}
			}
			return &core.ResourceQuota{Status: core.ResourceQuotaStatus{Used: names}, Spec: core.ResourceQuotaSpec{
				Scopes:        make([]core.ResourceQuotaScope, 2),
				ScopeSelector: &core.ScopeSelector{MatchExpressions: []core.ScopedResourceSelectorRequirement{{Values: texts(7)}}},
			}}
		},
		bounds.BindingSubjects: func(n int) runtime.Object { return &rbac.ClusterRoleBinding{Subjects: make([]rbac.Subject, n)} },
		bounds.ActiveJobs: func(n int) runtime.Object {
			return &batch.CronJob{Status: batch.CronJobStatus{Active: make([]core.ObjectReference, n)}}
		},
		bounds.ComparedEntries: func(n int) runtime.Object {
			return &resourceapi.ResourceClaim{Status: resourceapi.ResourceClaimStatus{Devices: make([]resourceapi.AllocatedDeviceStatus, n)}}
		},
		bounds.AutoscalerMetrics: func(n int) runtime.Object {
			return &autoscaling.HorizontalPodAutoscaler{Spec: autoscaling.HorizontalPodAutoscalerSpec{
				Metrics:  make([]autoscaling.MetricSpec, n-10),
				Behavior: &autoscaling.HorizontalPodAutoscalerBehavior{ScaleUp: &autoscaling.HPAScalingRules{Policies: make([]autoscaling.HPAScalingPolicy, 10)}},
			}}
		},
	} {
		limit := quantity.Max()
		if err := counts.Check(of(limit), nil); err != nil {
			t.Errorf("%s at its limit: %v", quantity, err)
		}
		more := of(limit + max(1, limit/10))
		if err := counts.Check(more, of(limit)); !errors.Is(err, bounds.ErrExceeded) || !strings.Contains(err.Error(), "limit "+quantity.String()) {
			t.Errorf("%s beyond its limit: %v", quantity, err)
		}
		if err := counts.Check(more, more); err != nil {
			t.Errorf("%s, as it was: %v", quantity, err)
		}
	}
	for _, other := range []runtime.Object{nil, &unstructured.Unstructured{}, &core.ConfigMap{}} {
		if err := counts.Check(other, nil); err != nil {
			t.Errorf("%T: %v", other, err)
		}
	}
}

// L3: 500 PodDisruptionBudgets with long selectors had more than a second of work for each pod that changed, and 2,000 Deployments
// five seconds for a ReplicaSet.
func TestHostileSelectorsOfAllWorkloadsAreBounded(t *testing.T) {
	long := map[string]string{"a": strings.Repeat("b", bounds.WorkloadSelectorBytes.Max())}
	selector := &metav1.LabelSelector{MatchLabels: long}
	for _, object := range []runtime.Object{
		&apps.Deployment{Spec: apps.DeploymentSpec{Selector: selector}}, &apps.ReplicaSet{Spec: apps.ReplicaSetSpec{Selector: selector}},
		&apps.StatefulSet{Spec: apps.StatefulSetSpec{Selector: selector}}, &apps.DaemonSet{Spec: apps.DaemonSetSpec{Selector: selector}},
		&batch.Job{Spec: batch.JobSpec{Selector: selector}}, &policy.PodDisruptionBudget{Spec: policy.PodDisruptionBudgetSpec{Selector: selector}},
		&core.ReplicationController{Spec: core.ReplicationControllerSpec{Selector: long}},
	} {
		if err := counts.Check(object, nil); !errors.Is(err, bounds.ErrExceeded) || !strings.Contains(err.Error(), "limit workload-selector-bytes") {
			t.Errorf("%T: %v", object, err)
		}
	}
}

// L3: what counts like others: an API server lists an error for each, and no registry's strategy returns these.
func TestHostileListsOfOtherKindsAreBounded(t *testing.T) {
	many := 501
	finalizers := make([]core.FinalizerName, many)
	fieldsOf := &authorization.FieldSelectorAttributes{Requirements: make([]metav1.FieldSelectorRequirement, many)}
	labelsOf := &authorization.LabelSelectorAttributes{Requirements: []metav1.LabelSelectorRequirement{{Values: texts(many)}}}
	for name, c := range map[string]struct {
		object   runtime.Object
		quantity bounds.Quantity
	}{
		"finalizers":                {&core.ConfigMap{ObjectMeta: metav1.ObjectMeta{Finalizers: texts(many)}}, bounds.ObjectLabels},
		"drivers of a node":         {&storage.CSINode{Spec: storage.CSINodeSpec{Drivers: make([]storage.CSINodeDriver, many)}}, bounds.ComparedEntries},
		"topologies of a class":     {&storage.StorageClass{AllowedTopologies: make([]core.TopologySelectorTerm, many)}, bounds.ComparedEntries},
		"tolerations of a pod":      {&core.Pod{Spec: core.PodSpec{Tolerations: make([]core.Toleration, many)}}, bounds.ComparedEntries},
		"statuses of containers":    {&core.Pod{Status: core.PodStatus{InitContainerStatuses: make([]core.ContainerStatus, many)}}, bounds.PodContainers},
		"conditions of a request":   {&certificates.CertificateSigningRequest{Status: certificates.CertificateSigningRequestStatus{Conditions: make([]certificates.CertificateSigningRequestCondition, many)}}, bounds.ComparedEntries},
		"finalizers of a namespace": {&core.Namespace{Spec: core.NamespaceSpec{Finalizers: finalizers}}, bounds.ObjectLabels},
		"fields of a request": {&authorization.SelfSubjectAccessReview{Spec: authorization.SelfSubjectAccessReviewSpec{
			ResourceAttributes: &authorization.ResourceAttributes{FieldSelector: fieldsOf}}}, bounds.SelectorTerms},
		"labels of a request": {&authorization.SubjectAccessReview{Spec: authorization.SubjectAccessReviewSpec{
			ResourceAttributes: &authorization.ResourceAttributes{LabelSelector: labelsOf}}}, bounds.SelectorTerms},
	} {
		var exceeded *bounds.ExceededError
		if err := counts.Check(c.object, nil); !errors.As(err, &exceeded) || exceeded.Quantity != c.quantity {
			t.Errorf("%s: %v", name, err)
		}
	}
}
