// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package dedicated

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berth-dev/berth/shard"
)

// S3: what a process says of its space can neither be refused by the host's API server nor pass for what Berth says.
func TestHostileConditionsAreNotTakenFromAProcess(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	since := metav1.NewTime(now.Add(-time.Hour))
	ready := metav1.Condition{Type: "Ready", Status: "True", Reason: "Running", Message: "it serves", LastTransitionTime: since}
	with := func(change func(*metav1.Condition)) metav1.Condition {
		c := ready
		change(&c)
		return c
	}
	for reason, test := range map[string]struct{ said, want []metav1.Condition }{
		"as it should be":    {[]metav1.Condition{ready}, []metav1.Condition{ready}},
		"none":               {nil, nil},
		"not Ready":          {[]metav1.Condition{{Type: "Synced", Status: "True", Reason: "Synced"}}, nil},
		"too many":           {make([]metav1.Condition, maxConditions+1), nil},
		"twice":              {[]metav1.Condition{ready, with(func(c *metav1.Condition) { c.Status = "False" })}, []metav1.Condition{ready}},
		"Berth's own":        {[]metav1.Condition{{Type: "Isolated", Status: "True", Reason: "Isolated"}, ready}, []metav1.Condition{ready}},
		"no type":            {[]metav1.Condition{ready, {Type: "a b\n", Status: "True", Reason: "A"}}, []metav1.Condition{ready}},
		"a bad status":       {[]metav1.Condition{with(func(c *metav1.Condition) { c.Status = "Maybe" })}, []metav1.Condition{with(func(c *metav1.Condition) { c.Status = "Unknown" })}},
		"a bad reason":       {[]metav1.Condition{with(func(c *metav1.Condition) { c.Reason = "no reason!" })}, []metav1.Condition{with(func(c *metav1.Condition) { c.Reason = "Failed" })}},
		"Berth's reason":     {[]metav1.Condition{with(func(c *metav1.Condition) { c.Reason = "OrphanedStore" })}, []metav1.Condition{with(func(c *metav1.Condition) { c.Reason = "Failed" })}},
		"a generation":       {[]metav1.Condition{with(func(c *metav1.Condition) { c.ObservedGeneration = -1 })}, []metav1.Condition{ready}},
		"terminal escapes":   {[]metav1.Condition{with(func(c *metav1.Condition) { c.Message = "\x1b]0;x\a\u202e\xffit\nserves" })}, []metav1.Condition{with(func(c *metav1.Condition) { c.Message = "]0;xit serves" })}},
		"a long message":     {[]metav1.Condition{with(func(c *metav1.Condition) { c.Message = strings.Repeat("x", 1<<16) })}, []metav1.Condition{with(func(c *metav1.Condition) { c.Message = strings.Repeat("x", maxMessage) + " ..." })}},
		"a time too late":    {[]metav1.Condition{with(func(c *metav1.Condition) { c.LastTransitionTime = metav1.NewTime(now.AddDate(8000, 0, 0)) })}, []metav1.Condition{with(func(c *metav1.Condition) { c.LastTransitionTime = metav1.Time{} })}},
		"a time too early":   {[]metav1.Condition{with(func(c *metav1.Condition) { c.LastTransitionTime = metav1.NewTime(now.AddDate(-2100, 0, 0)) })}, []metav1.Condition{with(func(c *metav1.Condition) { c.LastTransitionTime = metav1.Time{} })}},
		"Ready is not first": {[]metav1.Condition{{Type: "Synced", Status: "True", Reason: "Synced"}, ready}, []metav1.Condition{ready, {Type: "Synced", Status: "True", Reason: "Synced"}}},
	} {
		got, ok := checkedStatus(shard.Status{Conditions: test.said}, now)
		if diff := cmp.Diff(test.want, got.Conditions); diff != "" || ok != (test.want != nil) {
			t.Errorf("%s: %v\n%s", reason, ok, diff)
		}
	}
}
