// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package syncer_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// S2: the host's watches don't keep step, so that what its scheduler says of a new
// pod may come before the pod.
func TestAnEventThatComesBeforeItsPodIsTold(t *testing.T) {
	t.Parallel()
	b := synced(t, "early")
	said := func(pod, message string) {
		must(t, b.host.CoreV1().Events(b.space.HostNamespace()).Create, &corev1.Event{
			ObjectMeta:     metav1.ObjectMeta{Name: pod},
			InvolvedObject: corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: b.space.HostNamespace(), Name: b.hostName(pod)},
			Type:           corev1.EventTypeWarning, Reason: "FailedScheduling", Message: message,
			Source: corev1.EventSource{Component: corev1.DefaultSchedulerName},
		})
	}
	plain := func(name string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
	}
	pods := b.virtual.CoreV1().Pods("default")
	must(t, pods.Create, plain("before"))
	awaited(t, "have a pod on the host", b.host.CoreV1().Pods(b.space.HostNamespace()).Get, b.hostName("before"), func(*corev1.Pod) error { return nil })
	said("after", "0/3 nodes are available: 3 Insufficient cpu.")
	said("before", "0/3 nodes are available: 3 Insufficient memory.")
	b.told(t, "Pod", "before", "insufficient memory") // so that the one before it was looked at
	must(t, pods.Create, plain("after"))
	b.told(t, "Pod", "after", "insufficient cpu")
}
