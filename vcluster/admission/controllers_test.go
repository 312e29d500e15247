// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package admission_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"
)

// L3: a CronJob that was last scheduled in the year 2, or will be in 2097, and one whose deadline overflows, kept a processor busy for
// minutes, or for ever: the controller goes from one schedule to the next.
func TestHostileCronJobsAreScheduledInOurTime(t *testing.T) {
	jobs := startSpace(t).outside.BatchV1().CronJobs("default")
	job := &batchv1.CronJob{ObjectMeta: metav1.ObjectMeta{Name: "often"}, Spec: batchv1.CronJobSpec{
		Schedule: "* * * * *", Suspend: ptr.To(true), JobTemplate: batchv1.JobTemplateSpec{Spec: batchv1.JobSpec{Template: corev1.PodTemplateSpec{
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "c"}}, RestartPolicy: corev1.RestartPolicyNever},
		}}},
	}}
	late := job.DeepCopy()
	late.Spec.StartingDeadlineSeconds = ptr.To[int64](16226744074)
	if _, err := jobs.Create(t.Context(), late, metav1.CreateOptions{}); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "spec.startingDeadlineSeconds") {
		t.Errorf("a deadline that overflows: %v", err)
	}
	if _, err := jobs.Create(t.Context(), job, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	scheduled := func(when time.Time) error {
		_, err := jobs.Patch(t.Context(), "often", types.MergePatchType, fmt.Appendf(nil, `{"status":{"lastScheduleTime":%q}}`, when.Format(time.RFC3339)), metav1.PatchOptions{}, "status")
		return err
	}
	for _, year := range []int{2, 1897, 2011, 2097} {
		if err := scheduled(time.Date(year, 1, 1, 0, 0, 0, 0, time.UTC)); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "status.lastScheduleTime") {
			t.Errorf("scheduled in the year %d: %v", year, err)
		}
	}
	for _, ago := range []time.Duration{0, 365 * 24 * time.Hour} {
		if err := scheduled(time.Now().Add(-ago)); err != nil {
			t.Errorf("scheduled %s ago: %v", ago, err)
		}
	}
}

// L3: a revision that takes the number of replicas away from its StatefulSet made the controller panic in a goroutine that nothing
// recovers: four small objects ended the process, and again after each restart.
func TestHostileRevisionsTakeNothingAway(t *testing.T) {
	s := startSpace(t)
	revisions := s.outside.AppsV1().ControllerRevisions("default")
	revision := func(data string) *appsv1.ControllerRevision {
		return &appsv1.ControllerRevision{ObjectMeta: metav1.ObjectMeta{GenerateName: "r-", Labels: map[string]string{"a": "b"}}, Revision: 1, Data: runtime.RawExtension{Raw: []byte(data)}}
	}
	for _, hostile := range []string{
		`{"spec":{"persistentVolumeClaimRetentionPolicy":{"whenDeleted":"Retain","whenScaled":"Delete"},"replicas":null,"volumeClaimTemplates":[{"metadata":{"name":"c"}}]}}`,
		`{"spec":{"$patch":"replace"}}`, `{"$patch":"replace"}`, `{"spec":null}`, `{"spec":{"updateStrategy":{"rollingUpdate": null }}}`, `{"\u0073pec":{"selector":null}}`,
		`{"spec":{},"Spec":{"replicas":null}}`, `{"\u017fpec":{"replicas":null}}`, `{"spec":{"Replicas":null}}`,
	} {
		if _, err := revisions.Create(t.Context(), revision(hostile), metav1.CreateOptions{}); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "a revision must not remove fields") {
			t.Errorf("%s: %v", hostile, err)
		}
	}
	for _, usual := range []string{
		`{"spec":{"template":{"$patch":"replace","metadata":{"creationTimestamp":null},"spec":{"containers":[]}}}}`,
		`{"kind":"VirtualMachineInstancetype","metadata":{"creationTimestamp":null},"spec":{"cpu":{"guest":1}}}`,
	} {
		if _, err := revisions.Create(t.Context(), revision(usual), metav1.CreateOptions{}); err != nil {
			t.Errorf("%s: %v", usual, err)
		}
	}
	set := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: appsv1.StatefulSetSpec{
		Replicas: ptr.To[int32](1), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"c": "d"}}, Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"c": "d"}}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "c"}}},
		},
	}}
	if _, err := s.outside.AppsV1().StatefulSets("default").Create(t.Context(), set, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := wait.PollUntilContextTimeout(t.Context(), 100*time.Millisecond, testTimeout, true, func(ctx context.Context) (bool, error) {
		pods, err := s.outside.CoreV1().Pods("default").List(ctx, metav1.ListOptions{})
		return err == nil && len(pods.Items) == 1, nil
	}); err != nil {
		t.Errorf("the controller, whose own revisions are taken, makes no pod: %v", err)
	}
}

// L3: the controller of jobs counts their ends by reason, in the process that all spaces share, for as long as it runs.
func TestHostileJobsEndForReasonsThatAreKnown(t *testing.T) {
	jobs := startSpace(t).outside.BatchV1().Jobs("default")
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "once"}, Spec: batchv1.JobSpec{Suspend: ptr.To(true), Template: corev1.PodTemplateSpec{
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "c"}}, RestartPolicy: corev1.RestartPolicyNever},
	}}}
	if _, err := jobs.Create(t.Context(), job, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	fail := func(reason string) error {
		patch := fmt.Appendf(nil, `{"status":{"conditions":[{"type":"FailureTarget","status":"True","reason":%q,"lastTransitionTime":"2026-01-01T00:00:00Z"}]}}`, reason)
		_, err := jobs.Patch(t.Context(), "once", types.MergePatchType, patch, metav1.PatchOptions{}, "status")
		return err
	}
	if err := fail(strings.Repeat("x", 100_000)); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "status.conditions[0].reason") {
		t.Errorf("a reason of its own: %.300v", err)
	}
	if err := fail(batchv1.JobReasonDeadlineExceeded); err != nil {
		t.Errorf("a usual reason: %v", err)
	}
}
