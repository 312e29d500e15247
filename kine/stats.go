// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package kine

import (
	"context"
	"errors"
	"fmt"
	"os"
)

// Stats are figures of a store that are cheap to get: they read no data.
type Stats struct {
	FileBytes int64 // size of the SQLite file
	WALBytes  int64 // size of the write-ahead log beside it
	LiveBytes int64 // part of the file that is in use
}

// Stats reads the store's figures.
func (s *Store) Stats(ctx context.Context) (Stats, error) {
	var out Stats
	var err error
	if out.FileBytes, err = size(s.path); err != nil {
		return Stats{}, fmt.Errorf("read stats of store %s: %w", s.path, err)
	}
	if out.WALBytes, err = size(s.path + "-wal"); err != nil && !errors.Is(err, os.ErrNotExist) {
		return Stats{}, fmt.Errorf("read stats of store %s: %w", s.path, err)
	}
	status, err := s.client.Status(ctx, "")
	if err != nil {
		return Stats{}, fmt.Errorf("read stats of store %s: %w", s.path, err)
	}
	out.LiveBytes = status.DbSize
	return out, nil
}

func size(path string) (int64, error) {
	fi, err := os.Stat(path)
	if err != nil {
		return 0, err
	}
	return fi.Size(), nil
}
