// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package keeper

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// L3: however often a tenant changes a namespace, it is looked at seldom, and once more after the last change.
func TestHostileChangesAreLookedAtSeldom(t *testing.T) {
	q, now, looks := newQueue(), time.Unix(0, 0), 0
	for end := now.Add(10 * time.Minute); now.Before(end); now = now.Add(10 * time.Millisecond) {
		q.add("web")
		if name, _ := q.next(now); name != "" {
			looks++
			q.done(name, false, now)
		}
	}
	if looks > 40 {
		t.Errorf("it was looked at %d times in ten minutes", looks)
	}
	q.add("web")
	name, due := q.next(now)
	if name == "" && due.After(now.Add(lastPause)) {
		t.Errorf("the last change is looked at in %s", due.Sub(now))
	}
}

// No change is lost, whatever comes in between, and nothing is looked at without a change or a failure.
func TestQueueLosesNoChange(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		q, now := newQueue(), time.Unix(0, 0)
		waiting := map[string]bool{}
		names := rapid.SampledFrom([]string{"a", "b", "c"})
		for range rapid.IntRange(1, 100).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.Int64Range(0, int64(20*time.Second)).Draw(t, "pause")))
			if rapid.Bool().Draw(t, "change") {
				name := names.Draw(t, "name")
				q.add(name)
				waiting[name] = true
				continue
			}
			name, _ := q.next(now)
			if name == "" {
				continue
			}
			if !waiting[name] {
				t.Fatalf("%s did not change", name)
			}
			failed := rapid.Bool().Draw(t, "failed")
			q.done(name, failed, now)
			waiting[name] = failed
		}
		for range len(waiting) {
			now = now.Add(lastPause)
			if name, _ := q.next(now); name != "" {
				waiting[name] = false
			}
		}
		for name, left := range waiting {
			if left {
				t.Fatalf("the change of %s is lost", name)
			}
		}
	})
}
