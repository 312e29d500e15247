// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package shard_test

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/berth-dev/berth/shard"
	"github.com/berth-dev/berth/syncer/declaration"
)

// C6: a space takes up what is synced of it when it restarts, and it restarts only if that is something else. What it needs on the host for
// that is there before.
func TestASpaceRestartsIfSomethingElseIsSyncedOfIt(t *testing.T) {
	var declared atomic.Pointer[[]*declaration.Declaration]
	declared.Store(&[]*declaration.Declaration{})
	var prepared atomic.Int32
	var unprepared atomic.Bool
	s := newEnv(t, func(c *shard.Config) {
		c.Settings = func(string) shard.Settings { return shard.Settings{Declared: *declared.Load()} }
		c.Prepare = func(context.Context, string) error {
			prepared.Add(1)
			unprepared.Store(false)
			return nil
		}
		c.Unprepared = func(string) bool { return unprepared.Load() }
	})
	build(t, "declares")
	if err := s.Add("declares"); err != nil {
		t.Fatal(err)
	}
	if err := s.Wake(t.Context(), "declares"); err != nil {
		t.Fatal(err)
	}
	first := s.Space("declares")
	current := func(space *shard.Space) bool { return slices.Equal(space.Declared(), *declared.Load()) }
	if err := s.RestartUnless(t.Context(), "declares", current); err != nil || s.Space("declares") != first {
		t.Errorf("with the same, it restarts: %v, error %v", s.Space("declares") != first, err)
	}
	declared.Store(&[]*declaration.Declaration{{Name: "gadgets.example.com", Version: "a"}})
	unprepared.Store(true)
	if err := s.RestartUnless(t.Context(), "declares", current); err != nil {
		t.Fatal(err)
	}
	second := s.Space("declares")
	if second == nil || second == first || !current(second) || prepared.Load() != 2 {
		t.Errorf("with something else, it restarts: %v, prepared %d times", second != first, prepared.Load())
	}
	s.falls(t, "declares")
	if err := s.RestartUnless(t.Context(), "declares", func(*shard.Space) bool { return false }); err != nil || s.Space("declares") != nil {
		t.Errorf("it is woken: %v, error %v", s.Space("declares") != nil, err)
	}
	if err := s.Wake(t.Context(), "declares"); err != nil || prepared.Load() != 2 {
		t.Errorf("it is prepared %d times, error %v", prepared.Load(), err)
	}
}
