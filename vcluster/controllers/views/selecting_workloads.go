// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package views

import (
	"errors"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	appslisters "k8s.io/client-go/listers/apps/v1"
	batchlisters "k8s.io/client-go/listers/batch/v1"
)

// A pod without an owner is compared with the selectors of all workloads of its namespace, whenever its labels change. Upstream parses
// and validates each selector for that, which takes 20 ns for each byte of them: seconds, in a full store. Stored ones are valid.

var errSelectedByNone = errors.New("nothing selects the pod")

// replicaSetsOfPods looks for the ReplicaSets that select a pod.
type replicaSetsOfPods struct{ appslisters.ReplicaSetLister }

func (l replicaSetsOfPods) GetPodReplicaSets(pod *corev1.Pod) ([]*appsv1.ReplicaSet, error) {
	all, err := l.ReplicaSets(pod.Namespace).List(labels.Everything())
	if err != nil {
		return nil, err
	}
	return selecting(pod, all, func(r *appsv1.ReplicaSet) bool {
		return !isEmpty(r.Spec.Selector) && selects(r.Spec.Selector, pod.Labels)
	})
}

type statefulSetsOfPods struct{ appslisters.StatefulSetLister }

func (l statefulSetsOfPods) GetPodStatefulSets(pod *corev1.Pod) ([]*appsv1.StatefulSet, error) {
	all, err := l.StatefulSets(pod.Namespace).List(labels.Everything())
	if err != nil {
		return nil, err
	}
	return selecting(pod, all, func(s *appsv1.StatefulSet) bool {
		return !isEmpty(s.Spec.Selector) && selects(s.Spec.Selector, pod.Labels)
	})
}

type jobsOfPods struct{ batchlisters.JobLister }

func (l jobsOfPods) GetPodJobs(pod *corev1.Pod) ([]batchv1.Job, error) {
	all, err := l.Jobs(pod.Namespace).List(labels.Everything())
	if err != nil {
		return nil, err
	}
	found, err := selecting(pod, all, func(j *batchv1.Job) bool { return selects(j.Spec.Selector, pod.Labels) })
	jobs := make([]batchv1.Job, 0, len(found))
	for _, j := range found {
		jobs = append(jobs, *j)
	}
	return jobs, err
}

// selecting returns those of all that select the pod, or an error if there are none, as upstream does.
func selecting[T any](pod *corev1.Pod, all []T, selects func(T) bool) ([]T, error) {
	if len(pod.Labels) == 0 {
		return nil, errSelectedByNone
	}
	all = slices.DeleteFunc(all, func(t T) bool { return !selects(t) })
	if len(all) == 0 {
		return nil, errSelectedByNone
	}
	return all, nil
}

// isEmpty says whether a selector matches all labels. To upstream, such a ReplicaSet or StatefulSet selects no pod, and such a Job each.
func isEmpty(s *metav1.LabelSelector) bool {
	return s != nil && len(s.MatchLabels)+len(s.MatchExpressions) == 0
}

// selects says whether a valid selector matches labels.
func selects(s *metav1.LabelSelector, has labels.Set) bool {
	if s == nil {
		return false
	}
	for key, value := range s.MatchLabels {
		if have, ok := has[key]; !ok || have != value {
			return false
		}
	}
	for i := range s.MatchExpressions {
		if !meets(&s.MatchExpressions[i], has) {
			return false
		}
	}
	return true
}

func meets(r *metav1.LabelSelectorRequirement, has labels.Set) bool {
	value, ok := has[r.Key]
	switch r.Operator {
	case metav1.LabelSelectorOpIn:
		return ok && slices.Contains(r.Values, value)
	case metav1.LabelSelectorOpNotIn:
		return !ok || !slices.Contains(r.Values, value)
	case metav1.LabelSelectorOpExists:
		return ok
	case metav1.LabelSelectorOpDoesNotExist:
		return !ok
	}
	return false
}
