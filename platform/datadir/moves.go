// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package datadir

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/berth-dev/berth/internal/fsutil"
)

// MovesFile is the file with the number of moves in the directory of a space that has come from another shard.
const MovesFile = "moves"

// SetMoves notes how often the space in a directory, which must exist, has moved.
func SetMoves(dir string, moves int64) error {
	path := filepath.Join(dir, MovesFile)
	if moves == 0 {
		err := os.Remove(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return errors.Join(err, fsutil.SyncDir(dir))
	}
	return fsutil.Replace(path, func(w io.Writer) error {
		_, err := fmt.Fprint(w, moves)
		return err
	})
}

// Moves returns how often the space in a directory had moved between shards when its store came there. A directory with another number
// than the status of the Space object is not the one that counts.
func Moves(dir string) (int64, error) {
	text, err := os.ReadFile(filepath.Join(dir, MovesFile))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("read how often a space has moved: %w", err)
	}
	moves, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("read how often a space has moved: %w", err)
	}
	return moves, nil
}
