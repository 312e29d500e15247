// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package shard

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/berth-dev/berth/syncer"
	"github.com/berth-dev/berth/vcluster"
	"github.com/berth-dev/berth/vcluster/pki"
)

func startPlane(t *testing.T) *vcluster.ControlPlane {
	t.Helper()
	ca, err := pki.OpenCA(t.TempDir(), "serving")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	plane, err := vcluster.Start(ctx, vcluster.Config{
		Name: "halves", Dir: t.TempDir(), Endpoint: "https://berth.example:7443/spaces/halves", ServingCA: ca.PEM(),
	})
	if err != nil {
		t.Fatal(err)
	}
	return plane
}

// A space without a syncer would take in pods that never run: it must not go on.
func TestASpaceEndsWhenItsSyncerDoes(t *testing.T) {
	space := newSpace(startPlane(t), syncFunc(func(context.Context) error { return errors.New("out of order") }))
	go space.supervise()
	<-space.Done()
	if err := space.Err(); err == nil || !strings.Contains(err.Error(), "out of order") {
		t.Errorf("the space ended by %v", err)
	}
	select {
	case <-space.plane.Done():
	default:
		t.Error("the control plane goes on")
	}
}

func TestASyncerEndsWhenItsSpaceDoes(t *testing.T) {
	ended := make(chan struct{})
	space := newSpace(startPlane(t), syncFunc(func(ctx context.Context) error {
		defer close(ended)
		<-ctx.Done()
		return nil
	}))
	go space.supervise()
	if err := space.plane.Stop(context.WithoutCancel(t.Context())); err != nil {
		t.Fatal(err)
	}
	<-space.Done()
	<-ended
	if space.Err() == nil {
		t.Error("no reason is given")
	}
}

// A panic in one space ends that space, and no other.
func TestASpaceEndsWhenItsSyncerPanics(t *testing.T) {
	space := newSpace(startPlane(t), syncFunc(func(context.Context) error { panic("out of mind") }))
	go space.supervise()
	<-space.Done()
	if err := space.Err(); err == nil || !strings.Contains(err.Error(), "out of mind") {
		t.Errorf("the space ended by %v", err)
	}
}

type syncFunc func(context.Context) error

// Run implements syncing.
func (f syncFunc) Run(ctx context.Context) error { return f(ctx) }

// Idle implements syncing.
func (syncFunc) Idle() bool { return true }

// NextTimer implements syncing.
func (syncFunc) NextTimer() (time.Time, bool) { return time.Time{}, false }

// Stats implements syncing.
func (syncFunc) Stats() syncer.Stats { return syncer.Stats{} }
