// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/kwok/pkg/utils/lifecycle"
)

func TestStageThatAppliesToAPod(t *testing.T) {
	pods, err := podLifecycle()
	if err != nil {
		t.Fatal(err)
	}
	ready := []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	cases := map[string]struct {
		reason string
		pod    corev1.Pod
		stage  string
		delay  time.Duration
	}{
		"Scheduled": {
			reason: "what is scheduled is started",
			pod: corev1.Pod{
				Spec:   corev1.PodSpec{RestartPolicy: corev1.RestartPolicyAlways},
				Status: corev1.PodStatus{Phase: corev1.PodPending},
			},
			stage: "pod-ready",
		},
		"Running": {
			reason: "a server never ends",
			pod: corev1.Pod{
				Spec:   corev1.PodSpec{RestartPolicy: corev1.RestartPolicyAlways},
				Status: corev1.PodStatus{Phase: corev1.PodRunning, Conditions: ready},
			},
		},
		"RunningTask": {
			reason: "a pod that may end does so after a second",
			pod: corev1.Pod{
				Spec:   corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever},
				Status: corev1.PodStatus{Phase: corev1.PodRunning, Conditions: ready},
			},
			stage: "pod-complete",
			delay: time.Second,
		},
		"RunningLongTask": {
			reason: "the annotation says when it ends",
			pod: corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"pod-complete.stage.kwok.x-k8s.io/delay": "1h"}},
				Spec:       corev1.PodSpec{RestartPolicy: corev1.RestartPolicyOnFailure},
				Status:     corev1.PodStatus{Phase: corev1.PodRunning, Conditions: ready},
			},
			stage: "pod-complete",
			delay: time.Hour,
		},
		"Ended": {
			reason: "what has ended stays so",
			pod: corev1.Pod{
				Spec:   corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever},
				Status: corev1.PodStatus{Phase: corev1.PodSucceeded},
			},
		},
		"Deleted": {
			reason: "a pod that is being deleted goes, whatever it was doing",
			pod: corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: &metav1.Time{Time: time.Now()}},
				Spec:       corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever},
				Status:     corev1.PodStatus{Phase: corev1.PodRunning, Conditions: ready},
			},
			stage: "pod-delete",
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			event := &lifecycle.Event{Labels: c.pod.Labels, Annotations: c.pod.Annotations, Data: &c.pod}
			stage, err := pods.Match(t.Context(), event)
			if err != nil {
				t.Fatal(err)
			}
			if stage == nil {
				if c.stage != "" {
					t.Fatalf("no stage, want %s: %s", c.stage, c.reason)
				}
				return
			}
			delay, _, err := stage.Delay(t.Context(), event, time.Now())
			if err != nil {
				t.Fatal(err)
			}
			if stage.Name() != c.stage || delay != c.delay {
				t.Errorf("stage %s after %s, want %q after %s: %s", stage.Name(), delay, c.stage, c.delay, c.reason)
			}
			if !isDue(nil, graceful(&c.pod)) {
				t.Errorf("kwok is not told of a pod that %s applies to", stage.Name())
			}
		})
	}
}

// graceful gives a pod that is being deleted the grace that the API gives it.
func graceful(pod *corev1.Pod) *corev1.Pod {
	if pod.DeletionTimestamp != nil {
		grace := int64(30)
		pod.DeletionGracePeriodSeconds = &grace
	}
	return pod
}

func TestKwokIsToldOnceOfADeletion(t *testing.T) {
	pod := func(version string, deleted bool, grace int64) *corev1.Pod {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{ResourceVersion: version}, Status: corev1.PodStatus{Phase: corev1.PodRunning}}
		if deleted {
			pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds = &metav1.Time{Time: time.Now()}, &grace
		}
		return pod
	}
	cases := map[string]struct {
		reason   string
		old, pod *corev1.Pod
		want     bool
	}{
		"JustDeleted": {"somebody asked for it", pod("1", false, 0), pod("2", true, 30), true},
		"Ended":       {"kwok ended it and is about to delete it", pod("2", true, 30), pod("3", true, 30), false},
		"Gone":        {"kwok has deleted it; a finalizer may hold it", pod("3", true, 30), pod("4", true, 0), false},
		"Forced":      {"whoever deleted it left nothing to do", pod("1", false, 0), pod("2", true, 0), false},
		"Found":       {"it was being deleted when the host was started", nil, pod("2", true, 30), true},
		"Stuck":       {"kwok gave it up, and the informer resyncs", pod("3", true, 30), pod("3", true, 30), true},
		"Cut off":     {"the API server was killed as it deleted it", nil, pod("2", true, 0), true},
		"Left":        {"who forced it failed, and the informer resyncs", pod("2", true, 0), pod("2", true, 0), true},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if got := isDue(c.old, c.pod); got != c.want {
				t.Errorf("isDue() = %v, want %v: %s", got, c.want, c.reason)
			}
		})
	}
}
