// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package timeshare_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/berth-dev/berth/internal/timeshare"
)

// S8: work goes on at once as long as it may, and then for its share of each second.
func TestWorkThatUsedItsShareWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		share, begun := timeshare.New(500*time.Millisecond, 2*time.Second), time.Now()
		for range 2 {
			if err := share.Worked(t.Context(), time.Second); err != nil {
				t.Fatal(err)
			}
		}
		if waited := time.Since(begun); waited != 0 {
			t.Errorf("the first 2 s of work waited for %s", waited)
		}
		if err := share.Worked(t.Context(), time.Minute); err != nil { // counts as 2 s
			t.Fatal(err)
		}
		if waited := time.Since(begun); waited != 4*time.Second {
			t.Errorf("2 s more waited for %s, want 4s", waited)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if share.Worked(ctx, 2*time.Second) == nil {
			t.Error("it did not say that its context ends first")
		}
		if err := timeshare.Unlimited().Worked(ctx, time.Hour); err != nil {
			t.Errorf("unlimited work: %v", err)
		}
	})
}
