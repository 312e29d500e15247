// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/robfig/cron/v3"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kubernetes/pkg/controller/deployment/util"
	"k8s.io/kubernetes/pkg/controller/disruption"
	"k8s.io/kubernetes/pkg/controller/job"
	"k8s.io/kubernetes/pkg/util/parsers"
	"k8s.io/utils/ptr"

	"github.com/berth-dev/berth/vcluster/registry"
)

const (
	// overdue is how long something that was due may still be expected to be
	// done. After that it has failed, and will be tried again when the control
	// plane next starts: it must not keep a space awake for good.
	overdue = 30 * time.Second

	// autoscalerSync is upstream's --horizontal-pod-autoscaler-sync-period.
	autoscalerSync = 15 * time.Second
	// namespaceRetry is how soon a namespace is looked at again that is being
	// deleted, for namespaceTimeout.
	namespaceRetry   = 15 * time.Second
	namespaceTimeout = 5 * time.Minute
	// daemonBackoff is the longest that upstream waits before it makes a pod anew
	// on a node where others have failed.
	daemonBackoff = 15 * time.Minute
	// rangeGrace is upstream's, before a deleted service range goes.
	rangeGrace = 10 * time.Second
)

// NextTimer returns the earliest timer of the objects in the store.
func NextTimer(ctx context.Context, s *registry.Reader, now time.Time) (earliest time.Time, ok bool, err error) {
	due := func(t time.Time) {
		if !t.IsZero() && t.After(now.Add(-overdue)) && (!ok || t.Before(earliest)) {
			earliest, ok = t, true
		}
	}
	for _, look := range []func() error{
		timersOf(ctx, s, batchv1.SchemeGroupVersion.WithResource("cronjobs"), now, due, cronJobTimer),
		timersOf(ctx, s, batchv1.SchemeGroupVersion.WithResource("jobs"), now, due, jobTimer),
		timersOf(ctx, s, appsv1.SchemeGroupVersion.WithResource("deployments"), now, due, deploymentTimer),
		timersOf(ctx, s, appsv1.SchemeGroupVersion.WithResource("replicasets"), now, due, func(r *appsv1.ReplicaSet, now time.Time) time.Time {
			return availability(now, r.Spec.MinReadySeconds, r.Status.ReadyReplicas, r.Status.AvailableReplicas)
		}),
		timersOf(ctx, s, appsv1.SchemeGroupVersion.WithResource("statefulsets"), now, due, func(r *appsv1.StatefulSet, now time.Time) time.Time {
			return availability(now, r.Spec.MinReadySeconds, r.Status.ReadyReplicas, r.Status.AvailableReplicas)
		}),
		timersOf(ctx, s, appsv1.SchemeGroupVersion.WithResource("daemonsets"), now, due, daemonSetTimer),
		timersOf(ctx, s, corev1.SchemeGroupVersion.WithResource("replicationcontrollers"), now, due, func(r *corev1.ReplicationController, now time.Time) time.Time {
			return availability(now, r.Spec.MinReadySeconds, r.Status.ReadyReplicas, r.Status.AvailableReplicas)
		}),
		timersOf(ctx, s, policyv1.SchemeGroupVersion.WithResource("poddisruptionbudgets"), now, due, budgetTimer),
		timersOf(ctx, s, autoscalingv2.SchemeGroupVersion.WithResource("horizontalpodautoscalers"), now, due,
			func(_ *autoscalingv2.HorizontalPodAutoscaler, now time.Time) time.Time {
				return now.Add(autoscalerSync)
			}),
		timersOf(ctx, s, corev1.SchemeGroupVersion.WithResource("namespaces"), now, due, namespaceTimer),
		timersOf(ctx, s, networkingv1.SchemeGroupVersion.WithResource("servicecidrs"), now, due, rangeTimer),
	} {
		if err := look(); err != nil {
			return time.Time{}, false, err
		}
	}
	return earliest, ok, nil
}

// timersOf returns a function that hands due what timer says of each object of
// a resource.
func timersOf[T any, P interface {
	*T
	runtime.Object
}](
	ctx context.Context, s *registry.Reader, r schema.GroupVersionResource, now time.Time, due func(time.Time), timer func(P, time.Time) time.Time,
) func() error {
	return func() error {
		objects, err := registry.List[T, P](ctx, s, r.GroupVersion(), r.Resource)
		for _, object := range objects {
			due(timer(object, now))
		}
		return err
	}
}

// cronJobTimer returns when the cron job is next due. It is the last time
// instead, if that is not long ago and was not served yet.
func cronJobTimer(c *batchv1.CronJob, now time.Time) time.Time {
	if c.DeletionTimestamp != nil || c.Spec.Suspend != nil && *c.Spec.Suspend {
		return time.Time{}
	}
	text := c.Spec.Schedule
	if c.Spec.TimeZone != nil && !strings.Contains(text, "TZ") {
		text = "TZ=" + *c.Spec.TimeZone + " " + text
	}
	schedule, err := parsers.ParseCronScheduleWithPanicRecovery(text)
	if err != nil {
		return time.Time{} // upstream leaves it alone until it is changed
	}
	last := c.CreationTimestamp.Time
	if c.Status.LastScheduleTime != nil {
		last = c.Status.LastScheduleTime.Time
	}
	if every, ok := schedule.(cron.ConstantDelaySchedule); ok {
		// It counts from the last time, not from the hour.
		if passed := now.Add(-overdue).Sub(last); passed > 0 {
			last = last.Add(passed.Truncate(every.Delay))
		}
		return every.Next(last)
	}
	from := now.Add(-overdue)
	if last.After(from) {
		from = last
	}
	return schedule.Next(from) // zero for a day that never comes
}

// jobTimer returns when a job is next acted on: when it has lived long enough
// after its end, or runs for too long, or a failed pod is to be replaced.
func jobTimer(j *batchv1.Job, now time.Time) time.Time {
	if j.DeletionTimestamp != nil {
		return time.Time{}
	}
	for _, c := range j.Status.Conditions {
		if c.Status != corev1.ConditionTrue || c.Type != batchv1.JobComplete && c.Type != batchv1.JobFailed {
			continue
		}
		if j.Spec.TTLSecondsAfterFinished == nil {
			return time.Time{}
		}
		return c.LastTransitionTime.Add(seconds(*j.Spec.TTLSecondsAfterFinished))
	}
	if j.Spec.Suspend != nil && *j.Spec.Suspend {
		return time.Time{}
	}
	var t time.Time
	if j.Spec.ActiveDeadlineSeconds != nil && j.Status.StartTime != nil {
		t = j.Status.StartTime.Add(time.Duration(*j.Spec.ActiveDeadlineSeconds) * time.Second)
	}
	if j.Status.Failed > 0 && missingPods(j) > 0 {
		retry := now.Add(jobBackoff(j))
		if t.IsZero() || retry.Before(t) {
			t = retry
		}
	}
	return t
}

// missingPods is how many pods a job lacks: while it has failed ones, it waits
// before it makes them, whatever other pods it has.
func missingPods(j *batchv1.Job) int32 {
	want := ptr.Deref(j.Spec.Parallelism, 1)
	switch {
	case j.Spec.Completions != nil:
		want = min(want, *j.Spec.Completions-j.Status.Succeeded-countIndexes(ptr.Deref(j.Status.FailedIndexes, "")))
	case j.Status.Succeeded > 0:
		return 0 // it is done when those that there are have ended
	}
	have := j.Status.Active
	if ptr.Deref(j.Spec.PodReplacementPolicy, "") == batchv1.Failed {
		have += ptr.Deref(j.Status.Terminating, 0)
	}
	return want - have
}

// jobBackoff is how long a job waits at most before it makes a failed pod anew. A
// job with a limit by index waits for each index by itself: the status does not say
// how often each has failed, so this is the wait of the average one.
func jobBackoff(j *batchv1.Job) time.Duration {
	failures := j.Status.Failed - 1
	if j.Spec.BackoffLimitPerIndex != nil {
		failures = j.Status.Failed / max(1, ptr.Deref(j.Spec.Completions, 1))
	}
	return min(job.MaxJobPodFailureBackOff, job.DefaultJobPodFailureBackOff<<min(failures, 10))
}

// countIndexes counts indexes as a job's status lists them: "1,3-5".
func countIndexes(list string) (n int32) {
	for part := range strings.SplitSeq(list, ",") {
		first, last, isRange := strings.Cut(part, "-")
		from, err := strconv.ParseInt(first, 10, 32)
		if err != nil {
			continue
		}
		n++
		if to, err := strconv.ParseInt(last, 10, 32); isRange && err == nil && to > from {
			n += int32(to - from)
		}
	}
	return n
}

// deploymentTimer returns when a deployment is given up that does not progress.
func deploymentTimer(d *appsv1.Deployment, _ time.Time) time.Time {
	if !util.HasProgressDeadline(d) || d.Spec.Paused || d.DeletionTimestamp != nil {
		return time.Time{}
	}
	progress := util.GetDeploymentCondition(d.Status, appsv1.DeploymentProgressing)
	if progress == nil || progress.Reason == util.NewRSAvailableReason || progress.Reason == util.TimedOutReason {
		return time.Time{}
	}
	return progress.LastUpdateTime.Add(seconds(*d.Spec.ProgressDeadlineSeconds))
}

// availability returns when pods that are ready may count as available.
func availability(now time.Time, minReady, ready, available int32) time.Time {
	if minReady == 0 || ready <= available {
		return time.Time{}
	}
	return now.Add(seconds(minReady))
}

// daemonSetTimer returns when pods that are ready may count as available, or one
// that failed may be made anew.
func daemonSetTimer(d *appsv1.DaemonSet, now time.Time) time.Time {
	if d.DeletionTimestamp != nil {
		return time.Time{}
	}
	t := availability(now, d.Spec.MinReadySeconds, d.Status.NumberReady, d.Status.NumberAvailable)
	if t.IsZero() && d.Status.NumberUnavailable > 0 {
		t = now.Add(daemonBackoff)
	}
	return t
}

// budgetTimer returns when an evicted pod that did not go is counted again.
func budgetTimer(b *policyv1.PodDisruptionBudget, _ time.Time) (earliest time.Time) {
	for _, evicted := range b.Status.DisruptedPods {
		if t := evicted.Add(disruption.DeletionTimeout); earliest.IsZero() || t.Before(earliest) {
			earliest = t
		}
	}
	return earliest
}

func namespaceTimer(n *corev1.Namespace, now time.Time) time.Time {
	if n.DeletionTimestamp == nil || now.Sub(n.DeletionTimestamp.Time) > namespaceTimeout {
		return time.Time{}
	}
	return now.Add(namespaceRetry)
}

func rangeTimer(c *networkingv1.ServiceCIDR, _ time.Time) time.Time {
	if c.DeletionTimestamp == nil {
		return time.Time{}
	}
	return c.DeletionTimestamp.Add(rangeGrace)
}

func seconds(n int32) time.Duration { return time.Duration(n) * time.Second }
