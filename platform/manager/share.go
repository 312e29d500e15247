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
	"k8s.io/utils/ptr"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/platform/datadir"
	"github.com/berth-dev/berth/shard"
)

// A space whose spec has dedicateAfterSeconds becomes dedicated once it has been over its share of the process's memory for
// that long. Until then, the condition WithinShare has the state: its last transition says since when the space is over its
// share, and its reason Outgrown that the space is to be moved. So a restart of the platform loses neither. Time counts from
// the start of the platform at the earliest, because nobody knows what a space would have taken while nothing ran it. Once a
// space has been moved, the file with its applied spec says so, until the admin sets dedicateAfterSeconds to 0.

// shareReading is what the condition WithinShare of a space follows from.
type shareReading struct {
	After time.Duration // of spec.dedicateAfterSeconds; 0 for never
	Use   shard.ShareUse
	Share int64 // in bytes; 0 if the process has no limit
	// Within is for how long the space has been within its share, by all readings of this process.
	Within time.Duration
	// Moved says that the space has been moved to a process of its own, MayMove that it may be, and Paused that nothing may
	// be done to it.
	Moved, MayMove, Paused bool
	// DedicatedMax is how many dedicated spaces there may be, and Max how many of them may have been moved.
	DedicatedMax, Max int
	Start, Now        time.Time
}

// resetFraction is the part of dedicateAfterSeconds for which a space must be within its share before time begins anew: a
// space whose memory goes up and down is over its share most of the time, and so is one whose tenant wants to stay.
const resetFraction = 4

// shareCondition returns the condition WithinShare that follows on the one before, which may be nil; nil for none.
func shareCondition(before *metav1.Condition, r shareReading) *metav1.Condition {
	is := func(status metav1.ConditionStatus, since time.Time, reason, message string, args ...any) *metav1.Condition {
		return &metav1.Condition{
			Type: v1alpha1.ConditionWithinShare, Status: status, LastTransitionTime: metav1.NewTime(since), Reason: reason, Message: fmt.Sprintf(message, args...),
		}
	}
	since := r.Now
	if before != nil && before.Status == metav1.ConditionFalse {
		since = before.LastTransitionTime.Time
	}
	over := r.Now.Sub(since)
	if r.Start.After(since) {
		over = r.Now.Sub(r.Start)
	}
	decided := before != nil && before.Reason == v1alpha1.ReasonOutgrown
	current := before != nil && slices.Contains([]string{v1alpha1.ReasonWithinShare, v1alpha1.ReasonOverShare, v1alpha1.ReasonDedicatedLimit}, before.Reason)
	switch {
	case r.After <= 0:
		return nil
	case r.Moved:
		return is(metav1.ConditionTrue, r.Now, v1alpha1.ReasonDedicated,
			"the space outgrew its share of the shared process's memory, and has a process of its own; to move it back, set spec.dedicateAfterSeconds to 0, and in a cluster, annotate the Space with "+v1alpha1.AnnotationTrustDedicated+"=true if you trust what ran in its pod")
	case r.Share == 0:
		return is(metav1.ConditionUnknown, r.Now, v1alpha1.ReasonNoMemoryLimit, "the platform's process has no memory limit, so that a space has no share of it; set GOMEMLIMIT, or a limit of its control group")
	case !decided && current && (r.Use == shard.ShareUnknown || r.Use == shard.NearShare):
		return before
	case !decided && r.Use == shard.ShareUnknown:
		return nil
	case !decided && r.Use != shard.OverShare && before != nil && before.Status == metav1.ConditionFalse && r.Within < r.After/resetFraction:
		return before
	case !decided && r.Use != shard.OverShare:
		return is(metav1.ConditionTrue, r.Now, v1alpha1.ReasonWithinShare, "the space takes less than its share of the shared process's memory, %d bytes", r.Share)
	case !decided && over < r.After:
		return is(metav1.ConditionFalse, since, v1alpha1.ReasonOverShare,
			"the space takes more than its share of the shared process's memory, %d bytes; if that lasts for %s, it gets a process of its own", r.Share, r.After)
	case !r.MayMove:
		return is(metav1.ConditionFalse, since, v1alpha1.ReasonDedicatedLimit,
			"the space has outgrown its share of the shared process's memory, %d bytes, and waits for a place: --dedicated-max allows %d dedicated spaces, of which %d at most may be there because they have outgrown their share; "+
				"raise it, or move another space to the shared process", r.Share, r.DedicatedMax, r.Max)
	case r.Paused:
		return is(metav1.ConditionFalse, since, v1alpha1.ReasonOutgrown, "the space has outgrown its share of the shared process's memory, %d bytes, and moves to a process of its own once spec.paused is false", r.Share)
	default:
		return is(metav1.ConditionFalse, since, v1alpha1.ReasonOutgrown, "the space has outgrown its share of the shared process's memory, %d bytes, and is being moved to a process of its own", r.Share)
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

// mayDedicate reports whether a space that has outgrown its share is dedicated, or may become so. Other places are left for
// the spaces that an admin sets to Dedicated: tenants can make their spaces grow, and would take them all.
func (m *Manager) mayDedicate(name string) bool {
	return m.processes.get(name) != nil || len(m.processes.all()) < m.config.DedicatedMax && m.applied.outgrown() < m.mostOutgrown()
}

// mostOutgrown is how many spaces may be dedicated because they have outgrown their share.
func (m *Manager) mostOutgrown() int { return m.config.DedicatedMax / 2 }

// outgrown is how many spaces are dedicated because they have outgrown their share.
func (s *appliedSpecs) outgrown() (count int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, applied := range s.of {
		if applied.Outgrown {
			count++
		}
	}
	return count
}

// observeShare notes in a status how a space does with its share of the process's memory.
func (m *Manager) observeShare(status *v1alpha1.SpaceStatus, object *v1alpha1.Space) {
	reading := shareReading{
		After: m.config.Specs.DedicateAfter(&object.Spec), Use: m.shard.ShareUse(object.Name), Share: m.shard.MemoryShare(),
		MayMove: m.mayDedicate(object.Name), Paused: ptr.Deref(object.Spec.Paused, false), DedicatedMax: m.config.DedicatedMax, Max: m.mostOutgrown(), Start: m.started, Now: time.Now(),
	}
	switch reading.Use {
	case shard.WithinShare:
		since, _ := m.withinShare.LoadOrStore(object.Name, reading.Now)
		reading.Within = reading.Now.Sub(since.(time.Time))
	case shard.OverShare, shard.NearShare:
		m.withinShare.Delete(object.Name)
	case shard.ShareUnknown:
	}
	if object.Spec.Isolation == v1alpha1.Dedicated { // it has no share, and the admin has said so
		reading.After = 0
	}
	if applied := m.applied.get(object.Name); applied != nil {
		reading.Moved = applied.Outgrown
	}
	condition := shareCondition(meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionWithinShare), reading)
	if condition == nil {
		meta.RemoveStatusCondition(&status.Conditions, v1alpha1.ConditionWithinShare)
		return
	}
	now := *condition
	now.ObservedGeneration = object.Generation
	meta.SetStatusCondition(&status.Conditions, now)
}

// maxShareInterval is how often at least a space that runs, and may become dedicated, is looked at.
const maxShareInterval = 10 * time.Second

// nextShareReading is how long to wait until the next reading of a space that may become dedicated; 0 if there is none.
func (m *Manager) nextShareReading(object *v1alpha1.Space) time.Duration {
	after := m.config.Specs.DedicateAfter(&object.Spec)
	if after <= 0 || object.Spec.Isolation == v1alpha1.Dedicated || m.shard.ShareUse(object.Name) == shard.ShareUnknown {
		return 0
	}
	return min(max(after/4, time.Second), maxShareInterval)
}

// recordMove records an event about a space that is moved because it has outgrown its share. It may be called again.
func (m *Manager) recordMove(ctx context.Context, object *v1alpha1.Space) {
	condition := meta.FindStatusCondition(object.Status.Conditions, v1alpha1.ConditionWithinShare)
	if condition == nil {
		return
	}
	m.recordEvent(ctx, object, corev1.EventTypeNormal, v1alpha1.ReasonOutgrown, fmt.Sprintf("%x", condition.LastTransitionTime.Unix()), condition.Message)
}

// recordEvent records an event about a space, once for each id.
func (m *Manager) recordEvent(ctx context.Context, object *v1alpha1.Space, kind, reason, id, message string) {
	event := &corev1.Event{
		// Events about what is in no namespace are in this one.
		ObjectMeta:     metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: object.Name + "." + id},
		InvolvedObject: corev1.ObjectReference{APIVersion: v1alpha1.GroupVersion.String(), Kind: "Space", Name: object.Name, UID: object.UID},
		Type:           kind, Reason: reason, Message: message,
		Source: corev1.EventSource{Component: "berth"}, FirstTimestamp: metav1.Now(), LastTimestamp: metav1.Now(), Count: 1,
	}
	if err := m.hostClient.Create(ctx, event); err != nil && !apierrors.IsAlreadyExists(err) {
		m.logger.Error(err, "Could not record an event", "space", object.Name)
	}
}
