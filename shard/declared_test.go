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
	if err := s.Add("solar"); err != nil {
		t.Fatal(err)
	}
	if err := s.Wake(t.Context(), "solar"); err != nil {
		t.Fatal(err)
	}
	first := s.Space("solar")
	current := func(space *shard.Space) bool { return slices.Equal(space.Declared(), *declared.Load()) }
	if err := s.RestartUnless(t.Context(), "solar", current); err != nil || s.Space("solar") != first {
		t.Errorf("with the same, it restarts: %v, error %v", s.Space("solar") != first, err)
	}
	declared.Store(&[]*declaration.Declaration{{Name: "gadgets.example.com", Version: "a"}})
	unprepared.Store(true)
	if err := s.RestartUnless(t.Context(), "solar", current); err != nil {
		t.Fatal(err)
	}
	second := s.Space("solar")
	if second == nil || second == first || !current(second) || prepared.Load() != 2 {
		t.Errorf("with something else, it restarts: %v, prepared %d times", second != first, prepared.Load())
	}
	s.falls(t, "solar")
	if err := s.RestartUnless(t.Context(), "solar", func(*shard.Space) bool { return false }); err != nil || s.Space("solar") != nil {
		t.Errorf("it is woken: %v, error %v", s.Space("solar") != nil, err)
	}
	if err := s.Wake(t.Context(), "solar"); err != nil || prepared.Load() != 2 {
		t.Errorf("it is prepared %d times, error %v", prepared.Load(), err)
	}
}
