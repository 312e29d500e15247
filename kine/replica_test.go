// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package kine_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/berth-dev/berth/kine"
)

// follower is a replica that has the rows up to a revision.
type follower struct {
	compactable     atomic.Int64
	writes          atomic.Int64
	opened, closing *kine.Store
	store           *kine.Store
}

func (f *follower) Opened(s *kine.Store) { f.opened, f.store = s, s }
func (f *follower) Written()             { f.writes.Add(1) }
func (f *follower) Compactable() int64   { return f.compactable.Load() }
func (f *follower) Closing() {
	if _, err := f.store.RowsAfter(context.Background(), 0, 1); err == nil || errors.Is(err, kine.ErrRowsGone) {
		f.closing = f.store // it can still be read
	}
}

// D2, D3: a store keeps the rows that its replica doesn't have, and compacts them once the replica has them.
func TestAStoreKeepsRowsForItsReplica(t *testing.T) {
	f := &follower{}
	s, err := kine.Open(t.Context(), kine.Options{Path: filepath.Join(t.TempDir(), "state.db"), Name: "kept", Replica: f, History: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	if f.opened != s {
		t.Error("the replica was not told of the open store")
	}
	const kept = 20
	f.compactable.Store(kept)
	var revision int64
	const name = "/registry/configmaps/default/a"
	revision = create(t, s, name, "first")
	for i := range 1500 {
		revision = put(t, s, name, fmt.Sprint(i), revision)
	}
	await := func(reached func(compacted int64) bool) {
		t.Helper()
		if err := wait.PollUntilContextTimeout(t.Context(), time.Millisecond, 2*time.Minute, true, func(context.Context) (bool, error) {
			revision = put(t, s, name, "again", revision) // which schedules a compaction
			return reached(s.CompactRevision()), nil
		}); err != nil {
			t.Fatalf("compacted to %d: %v", s.CompactRevision(), err)
		}
	}
	await(func(compacted int64) bool { return compacted == kept })
	rows, err := s.RowsAfter(t.Context(), kept, 1<<30)
	if err != nil || int64(len(rows)) != s.Last()-kept || rows[0].ID != kept+1 {
		t.Errorf("%d rows after revision %d of %d (%v)", len(rows), kept, s.Last(), err)
	}
	if rows, err := s.RowsAfter(t.Context(), kept, 1); err != nil || len(rows) != 1 {
		t.Errorf("a page of one byte has %d rows (%v)", len(rows), err)
	}
	f.compactable.Store(1 << 60)
	await(func(int64) bool { // which is noted before the rows are removed
		_, err := s.RowsAfter(t.Context(), kept, 1<<30)
		return errors.Is(err, kine.ErrRowsGone)
	})
	if f.writes.Load() == 0 {
		t.Error("the replica was not told of writes")
	}
	if err := s.Close(); err != nil || f.closing != s {
		t.Errorf("the replica could not read the store before it was closed (%v)", err)
	}
}
