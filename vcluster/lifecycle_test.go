// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package vcluster_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sync/errgroup"

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

// What control planes share is made by whichever comes first.
func TestControlPlanesMayStartAtOnce(t *testing.T) {
	planes := make([]*vcluster.ControlPlane, 4)
	var group errgroup.Group
	for i := range planes {
		c := config(t, fmt.Sprintf("at-once-%d", i))
		group.Go(func() (err error) {
			ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
			defer cancel()
			planes[i], err = vcluster.Start(ctx, c)
			return err
		})
	}
	err := group.Wait()
	for _, p := range planes {
		if p == nil {
			continue
		}
		defer stop(t, p)
		if _, err := clientset(t, p.Loopback()).Discovery().OpenAPIV3().Paths(); err != nil {
			t.Error(err)
		}
	}
	if err != nil {
		t.Error(err)
	}
}
