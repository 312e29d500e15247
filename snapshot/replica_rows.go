// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/berth-dev/berth/kine"
	"github.com/berth-dev/berth/kine/sqlite"
	"github.com/berth-dev/berth/snapshot/segment"
)

// rowsFile has the rows of a replica, beside the store of its base.
const rowsFile = "rows"

// fetchRows writes the files of the base of a replica into dir, which must be empty, and what comes after it into a file, of which it returns the
// path. The store has not been opened or checked.
func (r *Replica) fetchRows(ctx context.Context, id ID, dir string) (path string, err error) {
	at, _, err := r.fetchBase(ctx, id, dir)
	if err != nil {
		return "", err
	}
	at.trusted = true // nothing here opens a store with them
	path = filepath.Join(dir, rowsFile)
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	previous := at.row
	return path, at.run(ctx, id, func(rows []sqlite.Row) error {
		if len(rows) == 0 {
			return nil
		}
		object, err := at.codec.Encode(segment.Header{Space: r.space, Previous: previous}, rows)
		if err != nil {
			return err
		}
		previous = segment.Digest(&rows[len(rows)-1])
		return segment.Write(file, object)
	})
}

// Append appends the rows in a file that [Fetch] has made to the store at path, which nobody has open. It fails with [ErrDamaged] if they don't
// follow on its last row. After an error, the store must not be used.
func Append(ctx context.Context, path, rows string) error {
	file, err := os.Open(rows)
	if err != nil {
		return err
	}
	defer file.Close()
	codec, err := segment.NewCodec()
	if err != nil {
		return err
	}
	if err := sqlite.CheckWhole(ctx, path, "quick_check"); err != nil { // before it is read
		return err
	}
	last, err := sqlite.LastRow(ctx, path)
	if err != nil {
		return err
	}
	return kine.Replay(ctx, path, func(add func([]sqlite.Row) error) error {
		for from := bufio.NewReader(file); ; {
			object, err := segment.Read(from)
			if errors.Is(err, io.EOF) {
				return nil
			}
			if err != nil {
				return err
			}
			h, rows, err := codec.Decode(object)
			if err != nil {
				return err
			}
			if h.First != last.ID+1 || h.Previous != segment.Digest(&last) {
				return fmt.Errorf("%w: the rows from revision %d don't follow on revision %d as it is there", ErrDamaged, h.First, last.ID)
			}
			last = rows[len(rows)-1]
			if err := add(rows); err != nil {
				return err
			}
		}
	})
}
