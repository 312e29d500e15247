// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package vcluster_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/berth-dev/berth/vcluster"
)

// Starting and stopping must leave nothing behind, for a space sleeps and wakes
// often (T8), and must not end the process, whenever the stop comes.
func TestStartsAndStopsLeaveNoGoroutine(t *testing.T) {
	// What the first start leaves is for the process; see ignoredGoroutines.
	stop(t, start(t, config(t, "first")))
	ignored := append(ignoredGoroutines(), goleak.IgnoreCurrent())

	began := time.Now()
	stop(t, start(t, config(t, "measure")))
	whole := time.Since(began)

	c := config(t, "again")
	for range 5 {
		stop(t, start(t, c))
	}
	var stopped int
	for i := range 15 {
		if i%2 == 0 { // a new space takes more steps to start
			c = config(t, "new")
		}
		wait := whole * time.Duration(i) / 15
		ctx, cancel := context.WithTimeout(t.Context(), wait)
		p, err := vcluster.Start(ctx, c)
		cancel()
		switch {
		case err == nil:
			stop(t, p)
		case errors.Is(err, context.DeadlineExceeded):
			stopped++
		default:
			t.Errorf("stopped after %s: %v", wait, err)
		}
	}
	if stopped < 5 {
		t.Errorf("of 15 starts %d were stopped in the middle, want at least 5", stopped)
	}
	if err := goleak.Find(ignored...); err != nil {
		t.Error(err)
	}
}
