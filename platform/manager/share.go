// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/platform/datadir"
	"github.com/berth-dev/berth/shard"
)

// A space whose spec has dedicateAfterSeconds becomes dedicated once it has been over its share of the process's memory for that
// long. The condition WithinShare is all that is kept of it until then, so that a restart of the platform forgets nothing:
// since when a space is over its share is when the condition became False, which a restart between two looks doesn't change, and
// the reason Outgrown says that it is to be moved. Once it runs so, it is noted with the spec that it runs with, and holds until the admin takes the setting back.

// shareLook is what decides about the condition WithinShare of a space.
type shareLook struct {
	After time.Duration // of spec.dedicateAfterSeconds; 0 for never
	Use   shard.ShareUse
	Share int64 // in bytes; 0 if the process has no limit
	// Moved says that the space has a process of its own for it, MayMove that there may be one more.
	Moved, MayMove bool
	Max            int // of dedicated spaces
	Now            time.Time
}

// shareCondition returns the condition WithinShare that follows on the one before, which may be nil; nil for none.
func shareCondition(before *metav1.Condition, l shareLook) *metav1.Condition {
	is := func(status metav1.ConditionStatus, since time.Time, reason, message string, args ...any) *metav1.Condition {
		return &metav1.Condition{
			Type: v1alpha1.ConditionWithinShare, Status: status, LastTransitionTime: metav1.NewTime(since), Reason: reason, Message: fmt.Sprintf(message, args...),
		}
	}
	since := l.Now
	if before != nil && before.Status == metav1.ConditionFalse {
		since = before.LastTransitionTime.Time
	}
	decided := before != nil && before.Reason == v1alpha1.ReasonOutgrown
	current := before != nil && slices.Contains([]string{v1alpha1.ReasonWithinShare, v1alpha1.ReasonOverShare, v1alpha1.ReasonDedicatedLimit}, before.Reason)
	switch {
	case l.After <= 0:
		return nil
	case l.Moved:
		return is(metav1.ConditionTrue, l.Now, v1alpha1.ReasonDedicated,
			"the space outgrew its share of the shared process's memory, and has a process of its own; to move it back, set spec.dedicateAfterSeconds to 0")
	case l.Share == 0:
		return is(metav1.ConditionUnknown, l.Now, v1alpha1.ReasonNoMemoryLimit, "the platform's process has no memory limit, so that a space has no share of it; set GOMEMLIMIT, or a limit of its control group")
	case !decided && current && (l.Use == shard.ShareUnknown || l.Use == shard.NearShare):
		return before
	case !decided && l.Use == shard.ShareUnknown:
		return nil
	case !decided && l.Use != shard.OverShare:
		return is(metav1.ConditionTrue, l.Now, v1alpha1.ReasonWithinShare, "the space takes less than its share of the shared process's memory, %d bytes", l.Share)
	case !decided && l.Now.Sub(since) < l.After:
		return is(metav1.ConditionFalse, since, v1alpha1.ReasonOverShare,
			"the space takes more than its share of the shared process's memory, %d bytes; if that lasts for %s, it gets a process of its own", l.Share, l.After)
	case !l.MayMove:
		return is(metav1.ConditionFalse, since, v1alpha1.ReasonDedicatedLimit,
			"the space has outgrown its share of the shared process's memory, %d bytes, and there are as many dedicated spaces as --dedicated-max allows, %d; raise it, or have another space be Shared", l.Share, l.Max)
	default:
		return is(metav1.ConditionFalse, since, v1alpha1.ReasonOutgrown, "the space has outgrown its share of the shared process's memory, %d bytes, and is being moved to a process of its own", l.Share)
	}
}

// specOf returns what the spec of an object says, with Dedicated in the place of Shared if the space has outgrown its share.
func (m *Manager) specOf(object *v1alpha1.Space) (spec *v1alpha1.SpaceSpec, outgrown bool) {
	if !m.outgrew(object) {
		return &object.Spec, false
	}
	spec = object.Spec.DeepCopy()
	spec.Isolation = v1alpha1.Dedicated
	return spec, true
}

func (m *Manager) outgrew(object *v1alpha1.Space) bool {
	if object.Spec.Isolation == v1alpha1.Dedicated || m.config.Specs.DedicateAfter(&object.Spec) <= 0 {
		return false
	}
	before := m.applied.get(object.Name)
	if before == nil {
		before, _ = readApplied(datadir.Space(m.config.DataDir, object.Name)) // who needs it reads it again, and fails
	}
	if before != nil && before.Outgrown {
		return true
	}
	condition := meta.FindStatusCondition(object.Status.Conditions, v1alpha1.ConditionWithinShare)
	return condition != nil && condition.Reason == v1alpha1.ReasonOutgrown && m.mayDedicate(object.Name)
}

// mayDedicate reports whether a space is dedicated, or may become so.
func (m *Manager) mayDedicate(name string) bool {
	return m.processes.get(name) != nil || len(m.processes.all()) < m.config.DedicatedMax
}

// observeShare notes in a status how a space does with its share of the process's memory.
func (m *Manager) observeShare(status *v1alpha1.SpaceStatus, object *v1alpha1.Space) {
	look := shareLook{
		After: m.config.Specs.DedicateAfter(&object.Spec), Use: m.shard.ShareUse(object.Name), Share: m.shard.MemoryShare(),
		MayMove: m.mayDedicate(object.Name), Max: m.config.DedicatedMax, Now: time.Now(),
	}
	if object.Spec.Isolation == v1alpha1.Dedicated { // it has no share, and the admin has said so
		look.After = 0
	}
	if applied := m.applied.get(object.Name); applied != nil {
		look.Moved = applied.Outgrown
	}
	condition := shareCondition(meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionWithinShare), look)
	if condition == nil {
		meta.RemoveStatusCondition(&status.Conditions, v1alpha1.ConditionWithinShare)
		return
	}
	now := *condition
	now.ObservedGeneration = object.Generation
	meta.SetStatusCondition(&status.Conditions, now)
}

// longestShareLook is how often at least a space that runs, and may become dedicated, is looked at.
const longestShareLook = 10 * time.Second

// shareLookAfter is when to look at a space again that may become dedicated; 0 if it can't.
func (m *Manager) shareLookAfter(object *v1alpha1.Space) time.Duration {
	after := m.config.Specs.DedicateAfter(&object.Spec)
	if after <= 0 || object.Spec.Isolation == v1alpha1.Dedicated || m.shard.ShareUse(object.Name) == shard.ShareUnknown {
		return 0
	}
	return min(max(after/4, time.Second), longestShareLook)
}

// recordMove records an event about a space that is moved because it has outgrown its share. It may be called again.
func (m *Manager) recordMove(ctx context.Context, object *v1alpha1.Space) {
	condition := meta.FindStatusCondition(object.Status.Conditions, v1alpha1.ConditionWithinShare)
	if condition == nil {
		return
	}
	at := condition.LastTransitionTime
	event := &corev1.Event{
		// Events about what is in no namespace are in this one.
		ObjectMeta:     metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: fmt.Sprintf("%s.%x", object.Name, at.Unix())},
		InvolvedObject: corev1.ObjectReference{APIVersion: v1alpha1.GroupVersion.String(), Kind: "Space", Name: object.Name, UID: object.UID},
		Type:           corev1.EventTypeNormal, Reason: v1alpha1.ReasonOutgrown, Message: condition.Message,
		Source: corev1.EventSource{Component: "berth"}, FirstTimestamp: metav1.Now(), LastTimestamp: metav1.Now(), Count: 1,
	}
	if err := m.hostClient.Create(ctx, event); err != nil && !apierrors.IsAlreadyExists(err) {
		m.logger.Error(err, "Could not record an event", "space", object.Name)
	}
}
