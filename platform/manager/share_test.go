// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/shard"
)

// T9: when a space becomes dedicated by itself is decided by what its condition says, and what it takes now.
func TestASpaceOutgrowsItsShareByBeingOverItForLongEnough(t *testing.T) {
	now := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	before := func(status metav1.ConditionStatus, reason string, ago time.Duration) *metav1.Condition {
		return &metav1.Condition{Type: v1alpha1.ConditionWithinShare, Status: status, Reason: reason, LastTransitionTime: metav1.NewTime(now.Add(-ago))}
	}
	within, over := before(metav1.ConditionTrue, v1alpha1.ReasonWithinShare, time.Hour), before(metav1.ConditionFalse, v1alpha1.ReasonOverShare, time.Minute)
	decided, full := before(metav1.ConditionFalse, v1alpha1.ReasonOutgrown, time.Hour), before(metav1.ConditionFalse, v1alpha1.ReasonDedicatedLimit, time.Hour)
	moved := before(metav1.ConditionTrue, v1alpha1.ReasonDedicated, time.Hour)
	for name, tc := range map[string]struct {
		reason string
		before *metav1.Condition
		change func(*shareReading)
		want   string // reason; none for no condition
		since  time.Duration
		says   string
	}{
		"off":                    {"nothing happens without the admin", over, func(r *shareReading) { r.After = 0 }, "", 0, ""},
		"new":                    {"it is small", nil, func(r *shareReading) { r.Use = shard.WithinShare }, v1alpha1.ReasonWithinShare, 0, "104 bytes"},
		"new and near":           {"it is not over", nil, func(r *shareReading) { r.Use = shard.NearShare }, v1alpha1.ReasonWithinShare, 0, ""},
		"grown":                  {"time begins", within, nil, v1alpha1.ReasonOverShare, 0, "for 10m0s"},
		"new and large":          {"time begins", nil, nil, v1alpha1.ReasonOverShare, 0, ""},
		"still":                  {"time goes on, also after a restart", over, nil, v1alpha1.ReasonOverShare, time.Minute, ""},
		"long enough":            {"it moves", over, func(r *shareReading) { r.After = time.Minute }, v1alpha1.ReasonOutgrown, time.Minute, "being moved"},
		"shrunk":                 {"time begins anew", over, func(r *shareReading) { r.Use, r.Within = shard.WithinShare, 150*time.Second }, v1alpha1.ReasonWithinShare, 0, ""},
		"shrunk for a moment":    {"time goes on", over, func(r *shareReading) { r.Use, r.Within = shard.WithinShare, 149*time.Second }, v1alpha1.ReasonOverShare, time.Minute, ""},
		"started a moment ago":   {"time counts from the start", before(metav1.ConditionFalse, v1alpha1.ReasonOverShare, time.Hour), func(r *shareReading) { r.Start = now.Add(-9 * time.Minute) }, v1alpha1.ReasonOverShare, time.Hour, ""},
		"started long ago":       {"it moves", before(metav1.ConditionFalse, v1alpha1.ReasonOverShare, time.Hour), func(r *shareReading) { r.Start = now.Add(-10 * time.Minute) }, v1alpha1.ReasonOutgrown, time.Hour, ""},
		"paused":                 {"it says when it moves", over, func(r *shareReading) { r.After, r.Paused = time.Minute, true }, v1alpha1.ReasonOutgrown, time.Minute, "once spec.paused is false"},
		"about the limit":        {"it neither moves", over, func(r *shareReading) { r.Use, r.After = shard.NearShare, time.Minute }, v1alpha1.ReasonOverShare, time.Minute, ""},
		"about the limit, small": {"nor begins to", within, func(r *shareReading) { r.Use = shard.NearShare }, v1alpha1.ReasonWithinShare, time.Hour, ""},
		"starting":               {"nothing is known, and nothing forgotten", over, func(r *shareReading) { r.Use, r.After = shard.ShareUnknown, time.Second }, v1alpha1.ReasonOverShare, time.Minute, ""},
		"never seen":             {"nothing is known", nil, func(r *shareReading) { r.Use = shard.ShareUnknown }, "", 0, ""},
		"no more allowed":        {"it stays, and says so", over, func(r *shareReading) { r.After, r.MayMove = time.Minute, false }, v1alpha1.ReasonDedicatedLimit, time.Minute, "--dedicated-max allows 6 dedicated spaces, of which 3"},
		"allowed again":          {"it moves", full, nil, v1alpha1.ReasonOutgrown, time.Hour, ""},
		"not allowed, shrunk":    {"it need not move", full, func(r *shareReading) { r.Use, r.Within, r.MayMove = shard.WithinShare, time.Hour, false }, v1alpha1.ReasonWithinShare, 0, ""},
		"allowed, but shrunk":    {"it need not move", full, func(r *shareReading) { r.Use, r.Within = shard.WithinShare, time.Hour }, v1alpha1.ReasonWithinShare, 0, ""},
		"decided":                {"a decision that others have seen stands", decided, func(r *shareReading) { r.Use = shard.WithinShare }, v1alpha1.ReasonOutgrown, time.Hour, ""},
		"decided, stopped":       {"also while it doesn't run", decided, func(r *shareReading) { r.Use = shard.ShareUnknown }, v1alpha1.ReasonOutgrown, time.Hour, ""},
		"decided, too late":      {"others were faster", decided, func(r *shareReading) { r.MayMove = false }, v1alpha1.ReasonDedicatedLimit, time.Hour, ""},
		"moved":                  {"it says how to move it back", decided, func(r *shareReading) { r.Moved, r.Use = true, shard.ShareUnknown }, v1alpha1.ReasonDedicated, 0, "dedicateAfterSeconds to 0"},
		"moved, no more allowed": {"it has its place", moved, func(r *shareReading) { r.Moved, r.MayMove = true, false }, v1alpha1.ReasonDedicated, 0, ""},
		"moved back":             {"time begins", moved, nil, v1alpha1.ReasonOverShare, 0, ""},
		"no limit":               {"there is nothing to share", within, func(r *shareReading) { r.Share, r.Use = 0, shard.ShareUnknown }, v1alpha1.ReasonNoMemoryLimit, 0, "GOMEMLIMIT"},
	} {
		t.Run(name, func(t *testing.T) {
			reading := shareReading{After: 10 * time.Minute, Use: shard.OverShare, Share: 104, MayMove: true, DedicatedMax: 6, Max: 3, Start: now.Add(-time.Hour), Now: now}
			if tc.change != nil {
				tc.change(&reading)
			}
			got := shareCondition(tc.before, reading)
			if got == nil || tc.want == "" {
				if got != nil || tc.want != "" {
					t.Fatalf("%s: got %+v, want %q", tc.reason, got, tc.want)
				}
				return
			}
			if got.Reason != tc.want || !got.LastTransitionTime.Time.Equal(now.Add(-tc.since)) || !strings.Contains(got.Message, tc.says) {
				t.Errorf("%s: got %s since %s, %q, want %s since %s, %q", tc.reason, got.Reason, got.LastTransitionTime, got.Message, tc.want, now.Add(-tc.since), tc.says)
			}
		})
	}
}

// T9: tenants can make their spaces grow, and leave places to the spaces that the admin sets to Dedicated.
func TestSpacesThatOutgrowTheirShareLeavePlacesToTheAdmins(t *testing.T) {
	m := &Manager{}
	m.config.DedicatedMax = 4
	take := func(name string, outgrown bool) {
		t.Helper()
		if !m.processes.add(name, nil, m.config.DedicatedMax) {
			t.Fatalf("there is no place for %s", name)
		}
		m.applied.set(name, &applied{Spec: v1alpha1.SpaceSpec{Isolation: v1alpha1.Dedicated}, Outgrown: outgrown})
	}
	for _, name := range []string{"grown-1", "grown-2"} {
		if !m.mayDedicate(name) {
			t.Errorf("%s may not be moved", name)
		}
		take(name, true)
	}
	if m.mayDedicate("grown-3") {
		t.Error("tenants take more than half of the places")
	}
	take("wanted-1", false)
	take("wanted-2", false)
	m.applied.remove("grown-1")
	m.processes.remove("grown-1")
	take("wanted-3", false)
	if m.mayDedicate("grown-3") {
		t.Error("there are more dedicated spaces than there may be")
	}
}
