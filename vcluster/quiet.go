// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package vcluster

import (
	"context"
	"fmt"
	"time"

	"github.com/berth-dev/berth/vcluster/controllers"
	"github.com/berth-dev/berth/vcluster/registry"
)

// Quiet returns for how long nothing has been written to the control plane.
func (p *ControlPlane) Quiet() time.Duration { return p.store.Kine.Quiet() }

// NextTimer returns when the control plane next has work of its own: a schedule, a time to live, or a deadline. A time
// in the past means that the work is in progress. ok is false if there is none.
//
// It is called before the control plane is put to sleep. It reads all objects that can have a timer.
func (p *ControlPlane) NextTimer(ctx context.Context) (t time.Time, ok bool, err error) {
	t, ok, err = controllers.NextTimer(ctx, &registry.Reader{Client: p.store.Client.Client}, time.Now())
	if err != nil {
		return time.Time{}, false, fmt.Errorf("look for timers of %s: %w", p.config.Name, err)
	}
	expiry, expires, err := p.store.Kine.NextExpiry(ctx)
	if err != nil {
		return time.Time{}, false, fmt.Errorf("look for timers of %s: %w", p.config.Name, err)
	}
	if expires && (!ok || expiry.Before(t)) {
		t, ok = expiry, true
	}
	return t, ok, nil
}

// HasDaemonSets reports whether there are DaemonSets, so that the control plane has work when its nodes change.
func (p *ControlPlane) HasDaemonSets(ctx context.Context) (bool, error) {
	found, err := controllers.HasDaemonSets(ctx, &registry.Reader{Client: p.store.Client.Client})
	if err != nil {
		return false, fmt.Errorf("look for daemon sets of %s: %w", p.config.Name, err)
	}
	return found, nil
}
