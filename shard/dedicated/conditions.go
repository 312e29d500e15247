// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package dedicated

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/control"
	"github.com/berth-dev/berth/shard"
)

// maxMessage is the maximum length of a condition's message, in bytes.
const maxMessage = 2 << 10

// knownReasons returns the reasons that a process may report for a condition.
func knownReasons(condition string) []string {
	switch condition {
	case v1alpha1.ConditionReady:
		return []string{
			shard.ReasonRunning, shard.ReasonAsleep, shard.ReasonWaking, shard.ReasonStarting, shard.ReasonStopping, shard.ReasonFailed,
			shard.ReasonCrashSuspect, shard.ReasonHostUnreachable,
		}
	case v1alpha1.ConditionHostReachable:
		return []string{v1alpha1.ReasonReachable, v1alpha1.ReasonUnreachable}
	case v1alpha1.ConditionStoreHealthy:
		return []string{v1alpha1.ReasonHealthy, v1alpha1.ReasonStoreFull, v1alpha1.ReasonStoreDamaged, v1alpha1.ReasonUnreachable, v1alpha1.ReasonStoreTakenOver}
	case v1alpha1.ConditionSynced:
		return []string{v1alpha1.ReasonSynced, v1alpha1.ReasonRejectedByHost}
	}
	return nil
}

// checkedStatus returns the valid part of a status that a process reports about its space, with the condition Ready
// first. It returns false if Ready is missing. The host's API server would reject an invalid status, and each later one
// with it.
func checkedStatus(said shard.Status, now time.Time) (shard.Status, bool) {
	if len(said.Conditions) > maxConditions {
		return shard.Status{}, false
	}
	checked := shard.Status{
		Requests: max(said.Requests, 0), LastRequest: checkedTime(said.LastRequest, now),
		NextWake: checkedTime(said.NextWake, now.AddDate(maxYears, 0, 0)),
	}
	for _, condition := range []string{
		v1alpha1.ConditionReady, v1alpha1.ConditionHostReachable, v1alpha1.ConditionStoreHealthy, v1alpha1.ConditionSynced,
	} {
		i := slices.IndexFunc(said.Conditions, func(c metav1.Condition) bool { return c.Type == condition })
		if i >= 0 {
			checked.Conditions = append(checked.Conditions, checkedCondition(said.Conditions[i], now))
		} else if condition == v1alpha1.ConditionReady {
			return shard.Status{}, false
		}
	}
	return checked, true
}

// checkedCondition returns the valid part of a condition that a process reports.
func checkedCondition(said metav1.Condition, now time.Time) metav1.Condition {
	checked := metav1.Condition{
		Type: said.Type, Status: said.Status, Reason: said.Reason, Message: control.Printable(said.Message, maxMessage),
	}
	if !slices.Contains([]metav1.ConditionStatus{metav1.ConditionTrue, metav1.ConditionFalse, metav1.ConditionUnknown}, said.Status) {
		checked.Status = metav1.ConditionUnknown
	}
	if !slices.Contains(knownReasons(said.Type), said.Reason) {
		checked.Reason = shard.ReasonFailed
	}
	if since := checkedTime(&said.LastTransitionTime, now); since != nil {
		checked.LastTransitionTime = *since
	}
	return checked
}

// maxYears limits how far ahead the next wake of a space may be.
const maxYears = 100

// checkedTime returns nil for a time before Berth existed, or later than latest by more than clocks differ. The host's
// API server can't parse all times that can be encoded.
func checkedTime(said *metav1.Time, latest time.Time) *metav1.Time {
	if said == nil || said.Unix() < 0 || said.After(latest.Add(time.Hour)) {
		return nil
	}
	return said
}
