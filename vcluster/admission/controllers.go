// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/admission"
)

// controllerChecks refuse what upstream's controllers, which all spaces share a process with, can't handle: an API server takes it,
// but it makes them panic, or work without an end.
func controllerChecks() map[schema.GroupResource]func(admission.Attributes) error {
	return map[schema.GroupResource]func(admission.Attributes) error{
		{Group: batchv1.GroupName, Resource: "cronjobs"}: func(a admission.Attributes) error {
			return validateSpec(a, &batchv1.CronJob{}, checkCronJob)
		},
		{Group: batchv1.GroupName, Resource: "jobs"}: func(a admission.Attributes) error {
			return validateSpec(a, &batchv1.Job{}, checkJob)
		},
		{Group: appsv1.GroupName, Resource: "controllerrevisions"}: func(a admission.Attributes) error {
			return validateSpec(a, &appsv1.ControllerRevision{}, checkRevision)
		},
	}
}

const (
	// longestAgo is how long before it was made a CronJob may have been scheduled last, as one that is restored from a backup.
	longestAgo = 10 * 365 * 24 * time.Hour
	// farthestAhead is how far clocks may differ.
	farthestAhead = 24 * time.Hour
	// maxDeadline is less than what overflows as a duration.
	maxDeadline = 1_000_000_000
)

// checkCronJob refuses times far from now. The controller goes from one schedule to the next until now: minute by minute since the
// year 2, and without an end where the next schedule does not exist, as of 29 February within five years of 2097, or of a day that a
// time zone left out.
func checkCronJob(c *batchv1.CronJob) field.ErrorList {
	var errs field.ErrorList
	if d := c.Spec.StartingDeadlineSeconds; d != nil && *d > maxDeadline {
		errs = append(errs, field.Invalid(field.NewPath("spec", "startingDeadlineSeconds"), *d, "use at most 1000000000 seconds, or remove the field"))
	}
	last := c.Status.LastScheduleTime
	if last != nil && (c.CreationTimestamp.Sub(last.Time) > longestAgo || time.Until(last.Time) > farthestAhead) {
		errs = append(errs, field.Invalid(field.NewPath("status", "lastScheduleTime"), last,
			"use a time between ten years before the creation of the CronJob and now, or remove the field"))
	}
	return errs
}

// checkJob refuses reasons that are not upstream's for conditions from which the controller takes the reason of the job's end: it
// counts the ends of jobs by reason, for as long as the process runs.
func checkJob(j *batchv1.Job) field.ErrorList {
	if m := j.Spec.ManagedBy; m != nil && *m != batchv1.JobControllerName {
		return nil
	}
	var errs field.ErrorList
	for i, c := range j.Status.Conditions {
		if (c.Type == batchv1.JobFailureTarget || c.Type == batchv1.JobSuccessCriteriaMet) && !slices.Contains(reasons(), c.Reason) {
			errs = append(errs, field.NotSupported(field.NewPath("status", "conditions").Index(i).Child("reason"), c.Reason, reasons()))
		}
	}
	return errs
}

func reasons() []string {
	return []string{
		"", batchv1.JobReasonPodFailurePolicy, batchv1.JobReasonBackoffLimitExceeded, batchv1.JobReasonDeadlineExceeded,
		batchv1.JobReasonMaxFailedIndexesExceeded, batchv1.JobReasonFailedIndexes, batchv1.JobReasonSuccessPolicy, batchv1.JobReasonCompletionsReached,
	}
}

// checkRevision refuses a revision that takes fields away from the StatefulSet that it is of, such as replicas: its controller applies
// a revision as a strategic merge patch, and panics without them. Revisions of other controllers are as they like, because nothing
// in them is null, nor a directive of such a patch, besides in their templates and metadata.
func checkRevision(r *appsv1.ControllerRevision) field.ErrorList {
	at := field.NewPath("data")
	var data map[string]json.RawMessage
	if len(r.Data.Raw) == 0 || json.Unmarshal(r.Data.Raw, &data) != nil {
		return nil // no patch
	}
	var errs field.ErrorList
	for name, value := range data {
		switch {
		case removes(name, value):
			errs = append(errs, field.Forbidden(at.Child(name), "a revision must not remove fields; remove this entry"))
		case name != "metadata": // in any case, as the patched object is decoded: ſpec is spec, too
			errs = append(errs, checkRevised(at.Child(name), value)...)
		}
	}
	return errs
}

func checkRevised(at *field.Path, raw json.RawMessage) field.ErrorList {
	var spec map[string]json.RawMessage
	if json.Unmarshal(raw, &spec) != nil {
		return nil
	}
	var errs field.ErrorList
	for name, value := range spec {
		switch {
		case removes(name, value):
			errs = append(errs, field.Forbidden(at.Child(name), "a revision must not remove fields; remove this entry"))
		case name != "template":
			errs = append(errs, checkRevised(at.Child(name), value)...)
		}
	}
	return errs
}

// removes tells whether a member of a strategic merge patch takes something away.
func removes(name string, value json.RawMessage) bool {
	return strings.HasPrefix(name, "$") || bytes.Equal(bytes.TrimSpace(value), []byte("null"))
}
