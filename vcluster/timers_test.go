// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package vcluster_test

import (
	"context"
	"testing"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"github.com/berth-dev/berth/vcluster"
)

// T8: a sleeping space wakes for its own timers.
func TestNextTimerIsWhatTheObjectsAreDueFor(t *testing.T) {
	c := config(t, "timers")
	c.Controllers = nil // so that nobody acts on the objects
	p := start(t, c)
	client := clientset(t, p.Loopback())
	auckland, err := time.LoadLocation("Pacific/Auckland")
	if err != nil {
		t.Skip("this machine knows no time zones")
	}
	newYear := time.Date(time.Now().In(auckland).Year()+1, 1, 1, 0, 0, 0, 0, auckland)
	ago := metav1.NewTime(time.Now().Add(-time.Hour).Truncate(time.Second))

	for reason, test := range map[string]struct {
		make func(context.Context, kubernetes.Interface) error
		// want is zero if there must be no timer.
		want time.Time
		// near says that want is when the timer was set.
		near time.Duration
	}{
		"a cron job, in its time zone": {
			make: cronJob(batchv1.CronJobSpec{Schedule: "0 0 1 1 *", TimeZone: ptr.To("Pacific/Auckland")}),
			want: newYear,
		},
		"a cron job that is suspended": {
			make: cronJob(batchv1.CronJobSpec{Schedule: "0 0 1 1 *", Suspend: ptr.To(true)}),
		},
		"a cron job for a day that never comes": {
			make: cronJob(batchv1.CronJobSpec{Schedule: "0 0 31 2 *"}),
		},
		"a cron job that counts from its creation": {
			make: cronJob(batchv1.CronJobSpec{Schedule: "@every 10h"}),
			want: time.Now().Add(10 * time.Hour), near: testTimeout,
		},
		"a job that is to go an hour after its end": {
			make: job(batchv1.JobSpec{TTLSecondsAfterFinished: ptr.To[int32](7200)}, batchv1.JobStatus{
				StartTime: &ago, CompletionTime: &ago, Succeeded: 1, Conditions: []batchv1.JobCondition{
					{Type: batchv1.JobSuccessCriteriaMet, Status: corev1.ConditionTrue, LastTransitionTime: ago},
					{Type: batchv1.JobComplete, Status: corev1.ConditionTrue, LastTransitionTime: ago},
				}}),
			want: ago.Add(2 * time.Hour),
		},
		"a job that failed and should have gone long ago": {
			make: job(batchv1.JobSpec{TTLSecondsAfterFinished: ptr.To[int32](5)}, batchv1.JobStatus{
				StartTime: &ago, Conditions: []batchv1.JobCondition{
					{Type: batchv1.JobFailureTarget, Status: corev1.ConditionTrue, LastTransitionTime: ago},
					{Type: batchv1.JobFailed, Status: corev1.ConditionTrue, LastTransitionTime: ago},
				}}),
		},
		"a job with a deadline": {
			make: job(batchv1.JobSpec{ActiveDeadlineSeconds: ptr.To[int64](7200)}, batchv1.JobStatus{StartTime: &ago}),
			want: ago.Add(2 * time.Hour),
		},
		"a job without one": {
			make: job(batchv1.JobSpec{}, batchv1.JobStatus{StartTime: &ago}),
		},
		// B2
		"a job with one pod at work, and one to be made again": {
			make: job(batchv1.JobSpec{Parallelism: ptr.To[int32](2), Completions: ptr.To[int32](2)},
				batchv1.JobStatus{StartTime: &ago, Active: 1, Failed: 2}),
			want: time.Now().Add(20 * time.Second), near: testTimeout,
		},
		"a job that has all the pods that it wants": {
			make: job(batchv1.JobSpec{Parallelism: ptr.To[int32](2), Completions: ptr.To[int32](2)},
				batchv1.JobStatus{StartTime: &ago, Active: 2, Failed: 2}),
		},
		"a job of which an index is to be made again": {
			make: job(perIndex(), batchv1.JobStatus{StartTime: &ago, Active: 2, Failed: 2}),
			want: time.Now().Add(10 * time.Second), near: testTimeout,
		},
		"a job of which an index has failed for good": {
			make: job(perIndex(), batchv1.JobStatus{StartTime: &ago, Active: 1, Failed: 12, FailedIndexes: ptr.To("0,2")}),
		},
		"an autoscaler": {
			make: func(ctx context.Context, client kubernetes.Interface) error {
				_, err := client.AutoscalingV2().HorizontalPodAutoscalers("default").Create(ctx, &autoscalingv2.HorizontalPodAutoscaler{
					ObjectMeta: meta("timer"),
					Spec: autoscalingv2.HorizontalPodAutoscalerSpec{MaxReplicas: 2, ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{
						APIVersion: "apps/v1", Kind: "Deployment", Name: "none"}},
				}, metav1.CreateOptions{})
				return err
			},
			want: time.Now(), near: testTimeout,
		},
	} {
		// Upstream's repair of addresses may have had something to tell when the API server started, and events expire.
		if err := client.CoreV1().Events("default").DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
			t.Fatal(err)
		}
		expectTimer(t, "before "+reason, p, time.Time{}, 0)
		if err := test.make(t.Context(), client); err != nil {
			t.Errorf("%s: %v", reason, err)
		}
		expectTimer(t, reason, p, test.want, test.near)
		for _, err := range []error{
			client.BatchV1().CronJobs("default").DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}),
			client.BatchV1().Jobs("default").DeleteCollection(t.Context(),
				metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationBackground)}, metav1.ListOptions{}),
			client.AutoscalingV2().HorizontalPodAutoscalers("default").DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}),
		} {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
}

// perIndex is a job whose three indexes fail by themselves.
func perIndex() batchv1.JobSpec {
	return batchv1.JobSpec{
		Parallelism: ptr.To[int32](3), Completions: ptr.To[int32](3), CompletionMode: ptr.To(batchv1.IndexedCompletion),
		BackoffLimit: ptr.To[int32](100), BackoffLimitPerIndex: ptr.To[int32](5), PodReplacementPolicy: ptr.To(batchv1.TerminatingOrFailed),
	}
}

func expectTimer(t *testing.T, reason string, p *vcluster.ControlPlane, want time.Time, near time.Duration) {
	t.Helper()
	got, ok, err := p.NextTimer(t.Context())
	switch {
	case err != nil:
		t.Fatalf("%s: %v", reason, err)
	case ok == want.IsZero():
		t.Errorf("%s: timer %v, %v, want %v", reason, got, ok, want)
	case ok && got.Sub(want).Abs() > near:
		t.Errorf("%s: timer %v, want %v", reason, got, want)
	}
}

func cronJob(spec batchv1.CronJobSpec) func(context.Context, kubernetes.Interface) error {
	return func(ctx context.Context, client kubernetes.Interface) error {
		spec.JobTemplate.Spec.Template = template("timer")
		spec.JobTemplate.Spec.Template.Spec.RestartPolicy = corev1.RestartPolicyNever
		_, err := client.BatchV1().CronJobs("default").Create(ctx, &batchv1.CronJob{ObjectMeta: meta("timer"), Spec: spec}, metav1.CreateOptions{})
		return err
	}
}

func job(spec batchv1.JobSpec, status batchv1.JobStatus) func(context.Context, kubernetes.Interface) error {
	return func(ctx context.Context, client kubernetes.Interface) error {
		spec.Template = template("timer")
		spec.Template.Spec.RestartPolicy = corev1.RestartPolicyNever
		made, err := client.BatchV1().Jobs("default").Create(ctx, &batchv1.Job{ObjectMeta: meta("timer"), Spec: spec}, metav1.CreateOptions{})
		if err != nil {
			return err
		}
		status.UncountedTerminatedPods = &batchv1.UncountedTerminatedPods{}
		made.Status, made.ResourceVersion = status, "" // whatever others write meanwhile
		_, err = client.BatchV1().Jobs("default").UpdateStatus(ctx, made, metav1.UpdateOptions{})
		return err
	}
}
