// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package counts

import (
	"maps"
	"reflect"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/kubernetes/pkg/apis/apps"
	"k8s.io/kubernetes/pkg/apis/authorization"
	"k8s.io/kubernetes/pkg/apis/autoscaling"
	"k8s.io/kubernetes/pkg/apis/batch"
	"k8s.io/kubernetes/pkg/apis/certificates"
	"k8s.io/kubernetes/pkg/apis/core"
	"k8s.io/kubernetes/pkg/apis/policy"
	"k8s.io/kubernetes/pkg/apis/rbac"
	"k8s.io/kubernetes/pkg/apis/resource"
	"k8s.io/kubernetes/pkg/apis/storage"

	"github.com/berth-dev/berth/bounds"
	"github.com/berth-dev/berth/vcluster/patches"
)

// Check returns an error that names the quantity if there is more of it in an object than allowed, and more than was in the object
// that it takes the place of, which may be nil. Both are of an API server's internal types; of others, only the metadata counts.
func Check(object, old runtime.Object) error {
	have := of(object)
	var had counted
	for _, quantity := range slices.Sorted(maps.Keys(have)) {
		n := have[quantity]
		err := quantity.Check(n)
		if err == nil {
			continue
		}
		if had == nil {
			had = of(old)
		}
		if n > had[quantity] {
			return err
		}
	}
	return nil
}

// counted is the largest number of each quantity.
type counted map[bounds.Quantity]int64

func of(object runtime.Object) counted {
	c := counted{}
	if object == nil {
		return c
	}
	if m, err := meta.Accessor(object); err == nil {
		c.add(bounds.OwnerReferences, len(m.GetOwnerReferences()))
		c.add(bounds.ObjectLabels, len(m.GetLabels()))
		c.add(bounds.ObjectLabels, len(m.GetAnnotations()))
		c.add(bounds.ObjectLabels, len(m.GetFinalizers()))
	}
	if _, ok := object.(runtime.Unstructured); ok {
		return c
	}
	switch o := object.(type) {
	case *rbac.Role:
		c.addRules(o.Rules)
	case *rbac.ClusterRole:
		c.addRules(o.Rules)
		if o.AggregationRule != nil {
			c.add(bounds.AggregationSelectors, len(o.AggregationRule.ClusterRoleSelectors))
		}
	case *rbac.RoleBinding:
		c.add(bounds.BindingSubjects, len(o.Subjects))
	case *rbac.ClusterRoleBinding:
		c.add(bounds.BindingSubjects, len(o.Subjects))
	case *batch.CronJob:
		c.add(bounds.ActiveJobs, len(o.Status.Active))
	case *core.Namespace:
		c.add(bounds.ObjectLabels, len(o.Spec.Finalizers))
	case *authorization.SelfSubjectAccessReview:
		c.addRequest(o.Spec.ResourceAttributes)
	case *authorization.SubjectAccessReview:
		c.addIdentity(&o.Spec)
	case *authorization.LocalSubjectAccessReview:
		c.addIdentity(&o.Spec)
	case *resource.ResourceClaim:
		c.add(bounds.ComparedEntries, len(o.Status.Devices))
	case *storage.CSINode:
		c.add(bounds.ComparedEntries, len(o.Spec.Drivers))
	case *core.Pod:
		s := &o.Status
		c.add(bounds.PodContainers, max(len(s.ContainerStatuses), len(s.InitContainerStatuses), len(s.EphemeralContainerStatuses)))
	case *storage.StorageClass:
		c.add(bounds.ComparedEntries, len(o.AllowedTopologies))
	case *certificates.CertificateSigningRequest:
		c.add(bounds.ComparedEntries, len(o.Status.Conditions))
		if r, err := certificates.ParseCSR(o.Spec.Request); err == nil {
			c.add(bounds.KeyBits, bitsOf(r.PublicKey))
		}
	case *core.ResourceQuota:
		c.addQuota(o)
	case *core.LimitRange:
		for i := range o.Spec.Limits {
			l := &o.Spec.Limits[i]
			c[bounds.QuotaNames] += int64(1 + len(l.Max) + len(l.Min) + len(l.Default) + len(l.DefaultRequest) + len(l.MaxLimitRequestRatio))
		}
	case *autoscaling.HorizontalPodAutoscaler:
		c.addAutoscaler(&o.Spec)
	case *apps.Deployment:
		c.addWorkload(o.Spec.Selector)
	case *apps.ReplicaSet:
		c.addWorkload(o.Spec.Selector)
	case *apps.StatefulSet:
		c.addWorkload(o.Spec.Selector)
	case *apps.DaemonSet:
		c.addWorkload(o.Spec.Selector)
	case *batch.Job:
		c.addWorkload(o.Spec.Selector)
	case *policy.PodDisruptionBudget:
		c.addWorkload(o.Spec.Selector)
	case *core.ReplicationController:
		c.addWorkload(&metav1.LabelSelector{MatchLabels: o.Spec.Selector})
	}
	c.walk(reflect.ValueOf(object))
	return c
}

func (c counted) add(q bounds.Quantity, n int) { c[q] = max(c[q], int64(n)) }

func (c counted) addRules(rules []rbac.PolicyRule) {
	c.add(bounds.RoleRules, len(rules))
	c.add(bounds.RoleCombinations, int(Combinations(rules)))
}

// Combinations is how many single permissions rules give.
func Combinations[R rbac.PolicyRule | rbacv1.PolicyRule](rules []R) int64 {
	n := 0
	for _, rule := range rules {
		r := rbac.PolicyRule(rule)
		n += max(1, len(r.APIGroups))*len(r.Resources)*len(r.Verbs)*max(1, len(r.ResourceNames)) + len(r.NonResourceURLs)*len(r.Verbs)
	}
	return int64(n)
}

func (c counted) addIdentity(s *authorization.SubjectAccessReviewSpec) {
	n := len(s.Groups)
	for _, values := range s.Extra {
		n += len(values)
	}
	c.add(bounds.IdentityGroups, n)
	c.addRequest(s.ResourceAttributes)
}

func (c counted) addRequest(r *authorization.ResourceAttributes) {
	if r == nil {
		return
	}
	n := 0
	if s := r.FieldSelector; s != nil {
		for i := range s.Requirements {
			n += 1 + len(s.Requirements[i].Values)
		}
	}
	if s := r.LabelSelector; s != nil {
		for i := range s.Requirements {
			n += 1 + len(s.Requirements[i].Values)
		}
	}
	c.add(bounds.SelectorTerms, n)
}

func (c counted) addQuota(q *core.ResourceQuota) {
	n := max(len(q.Spec.Hard), len(q.Status.Hard), len(q.Status.Used)) + len(q.Spec.Scopes)
	if s := q.Spec.ScopeSelector; s != nil {
		for i := range s.MatchExpressions {
			n += 1 + len(s.MatchExpressions[i].Values)
		}
	}
	c.add(bounds.QuotaNames, n)
}

func (c counted) addAutoscaler(spec *autoscaling.HorizontalPodAutoscalerSpec) {
	n := len(spec.Metrics)
	if b := spec.Behavior; b != nil {
		for _, rules := range []*autoscaling.HPAScalingRules{b.ScaleUp, b.ScaleDown} {
			if rules != nil {
				n += len(rules.Policies)
			}
		}
	}
	c.add(bounds.AutoscalerMetrics, n)
}

// walk counts in what an object is made of.
func (c counted) walk(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		c.walk(v.Elem())
	case reflect.Slice:
		if v.Type().Elem().Kind() != reflect.Uint8 {
			for i := range v.Len() {
				c.walk(v.Index(i))
			}
		}
	case reflect.Struct:
		if !v.CanInterface() {
			return
		}
		switch part := v.Interface().(type) {
		case metav1.LabelSelector:
			c.addSelector(part)
			return
		case core.PodTemplateSpec:
			c.add(bounds.TemplateBytes, int(patches.ShapeOf(part).Bytes))
		case core.PodSpec:
			c.addPod(&part)
		case core.ServiceSpec:
			c.add(bounds.SelectorTerms, len(part.Selector))
		case core.ReplicationControllerSpec:
			c.add(bounds.SelectorTerms, len(part.Selector))
		}
		for i := range v.NumField() {
			if f := v.Type().Field(i); f.Name == "CABundle" && f.Type == reflect.TypeFor[[]byte]() {
				c.add(bounds.KeyBits, longestKey(v.Field(i).Bytes()))
			}
			c.walk(v.Field(i))
		}
	}
}

func (c counted) addSelector(s metav1.LabelSelector) {
	n := len(s.MatchLabels) + len(s.MatchExpressions)
	for _, e := range s.MatchExpressions {
		n += len(e.Values)
	}
	c.add(bounds.SelectorTerms, n)
}

func (c counted) addWorkload(s *metav1.LabelSelector) {
	const each = 16
	if s == nil {
		return
	}
	n := 0
	for key, value := range s.MatchLabels {
		n += each + len(key) + len(value)
	}
	for _, e := range s.MatchExpressions {
		n += each + len(e.Key)
		for _, value := range e.Values {
			n += each + len(value)
		}
	}
	c.add(bounds.WorkloadSelectorBytes, n)
}

func (c counted) addPod(spec *core.PodSpec) {
	ports, items, resources := 0, 0, 0
	for _, containers := range [][]core.Container{spec.Containers, spec.InitContainers} {
		for i := range containers {
			ports += len(containers[i].Ports)
			resources += len(containers[i].Resources.Requests) + len(containers[i].Resources.Limits)
		}
	}
	for i := range spec.EphemeralContainers {
		ports += len(spec.EphemeralContainers[i].Ports)
	}
	for i := range spec.Volumes {
		items += itemsOf(&spec.Volumes[i].VolumeSource)
	}
	c.add(bounds.ComparedEntries, len(spec.Tolerations))
	c.add(bounds.PodPorts, ports)
	c.add(bounds.PodResources, resources)
	c.add(bounds.VolumeItems, items)
}

// itemsOf is how many files a volume says it has.
func itemsOf(v *core.VolumeSource) int {
	n := 0
	if v.ConfigMap != nil {
		n += len(v.ConfigMap.Items)
	}
	if v.Secret != nil {
		n += len(v.Secret.Items)
	}
	if v.DownwardAPI != nil {
		n += len(v.DownwardAPI.Items)
	}
	if v.Projected == nil {
		return n
	}
	for _, s := range v.Projected.Sources {
		n++
		if s.ConfigMap != nil {
			n += len(s.ConfigMap.Items)
		}
		if s.Secret != nil {
			n += len(s.Secret.Items)
		}
		if s.DownwardAPI != nil {
			n += len(s.DownwardAPI.Items)
		}
	}
	return n
}
