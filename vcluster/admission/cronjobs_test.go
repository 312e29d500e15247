// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package admission_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// L3: a CronJob that was last scheduled in the year 2 kept a processor busy for minutes: its controller looked at each minute since.
func TestHostileCronJobsWereLastScheduledInOurTime(t *testing.T) {
	jobs := startSpace(t).outside.BatchV1().CronJobs("default")
	job := &batchv1.CronJob{ObjectMeta: metav1.ObjectMeta{Name: "often"}, Spec: batchv1.CronJobSpec{
		Schedule: "* * * * *", Suspend: ptr.To(true), JobTemplate: batchv1.JobTemplateSpec{Spec: batchv1.JobSpec{Template: corev1.PodTemplateSpec{
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "c"}}, RestartPolicy: corev1.RestartPolicyNever},
		}}},
	}}
	if _, err := jobs.Create(t.Context(), job, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	scheduled := func(ctx context.Context, when time.Time) error {
		_, err := jobs.Patch(ctx, "often", types.MergePatchType, fmt.Appendf(nil, `{"status":{"lastScheduleTime":%q}}`, when.Format(time.RFC3339)), metav1.PatchOptions{}, "status")
		return err
	}
	if err := scheduled(t.Context(), time.Date(2, 1, 1, 0, 0, 0, 0, time.UTC)); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "status.lastScheduleTime") {
		t.Errorf("scheduled in the year 2: %v", err)
	}
	if err := scheduled(t.Context(), time.Date(1998, 1, 1, 0, 0, 0, 0, time.UTC)); err != nil {
		t.Errorf("scheduled in 1998: %v", err)
	}
}
