// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package kine

import (
	"context"
	"fmt"
)

// Pragma reads a setting of the connection that writes.
func (s *Store) Pragma(ctx context.Context, name string) (string, error) {
	var v string
	err := s.engine.db.Writer().QueryRowContext(ctx, "PRAGMA "+name).Scan(&v)
	return v, err
}

// LimitPages makes the file as full as a disk can be: SQLite fails as it does there.
func (s *Store) LimitPages(ctx context.Context, n int) error {
	_, err := s.engine.db.Writer().ExecContext(ctx, fmt.Sprintf("PRAGMA max_page_count=%d", n))
	return err
}

// Release does what happens to an idle store, and returns how many connections are open after.
func (s *Store) Release() int {
	s.engine.release()
	return s.engine.db.Readers().DB.Stats().OpenConnections + s.engine.db.Writer().Stats().OpenConnections
}

// TellProgress does what happens a while after others' keys were written.
func (s *Store) TellProgress() { s.engine.hub.TellProgress() }

// LimitLists sets how many bytes a list may have. It is called before the store is used.
func (s *Store) LimitLists(n int64) { s.engine.log.maxList = n }
