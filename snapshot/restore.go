// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/berth-dev/berth/internal/fsutil"
	"github.com/berth-dev/berth/internal/storemark"
	"github.com/berth-dev/berth/kine"
)

// replacedFile is the store that a restore has replaced. It is kept until the next restore.
const replacedFile = storeFile + ".replaced"

// movesFile is the file with how often the space has moved between shards. It is beside the files of a replica.
const movesFile = "moves"

// ErrElsewhere is returned for a snapshot that this process may not open, because its store is from the pod of a
// dedicated space: a tenant who has taken over the pod may have written any bytes. See [Bucket.Trusted].
var ErrElsewhere = errors.New("its store is from the pod of a dedicated space, and would be opened in Berth's own process; " +
	"restore it under its own name while the space is Dedicated, or if you trust what ran in the pod, use --trust-dedicated")

// Exists reports whether dir, the directory of a space, contains its store, or says which database server has it.
func Exists(dir string) bool { return exists(filepath.Join(dir, storeFile)) || storemark.Exists(dir) }

// Replace restores a space in spaces, the directory with a directory for each space, from a snapshot. The space must
// not run. It keeps its keys, so that existing credentials stay valid; if the keys are lost, it gets those of the
// snapshot. The old store is kept as store.db.replaced until the next restore.
//
// It is atomic. It also replaces a damaged store, but not one that can't be read for another reason.
func Replace(ctx context.Context, bucket *Bucket, id ID, spaces, scratch string) error {
	err := withFetched(ctx, bucket, id, scratch, func(from string) error {
		return replace(ctx, from, filepath.Join(spaces, id.Space))
	})
	if err != nil {
		return fmt.Errorf("restore snapshot %s: %w", id, err)
	}
	return nil
}

// Recover is [Replace] for a space whose directory was lost, and whose object says how often it has moved between shards.
func Recover(ctx context.Context, bucket *Bucket, id ID, moves int64, spaces, scratch string) error {
	err := withFetched(ctx, bucket, id, scratch, func(from string) error {
		if err := writeMoves(from, moves); err != nil {
			return err
		}
		return replace(ctx, from, filepath.Join(spaces, id.Space))
	})
	if err != nil {
		return fmt.Errorf("restore snapshot %s: %w", id, err)
	}
	return nil
}

func writeMoves(dir string, moves int64) error {
	return fsutil.Replace(filepath.Join(dir, movesFile), func(w io.Writer) error {
		_, err := fmt.Fprint(w, moves)
		return err
	})
}

// Clone creates a space named as from a snapshot of another space. It has its own keys, so that credentials of the
// other space are not valid in it. References to the other space in its store are changed, see [Reidentify]. An
// existing space of that name keeps its keys, and its store is kept as by [Replace]. prepare is called after the
// snapshot has been checked; when it returns, the space must not run.
//
// It is atomic, except for what prepare and reserve do.
func Clone(ctx context.Context, bucket *Bucket, id ID, as, spaces, scratch string, prepare func(context.Context) error, reserve Reserve) (Changes, error) {
	dir := filepath.Join(spaces, as)
	var changes Changes
	err := withFetched(ctx, bucket, id, scratch, func(from string) (err error) {
		if err := prepare(ctx); err != nil {
			return err
		}
		if changes, err = Reidentify(ctx, filepath.Join(from, storeFile), as, reserve); err != nil {
			return err
		}
		return place(ctx, from, dir)
	})
	if err != nil {
		return Changes{}, fmt.Errorf("restore snapshot %s as %s: %w", id, as, err)
	}
	return changes, nil
}

// Fetch calls do with the store of a snapshot, and the directory of its files. The store has not been opened or
// checked; [Restore] does that. Of a replica, rows is a file with what was written after that store, for [Append]. It is
// "" otherwise.
func Fetch(ctx context.Context, bucket *Bucket, id ID, scratch string, do func(store, rows, dir string) error) error {
	use := func(dir, rows string) error { return do(filepath.Join(dir, storeFile), rows, dir) }
	var err error
	if id.Latest {
		err = inScratch(scratch, func(dir string) error {
			rows, err := bucket.Replica(id.Space).fetchRows(ctx, id, dir)
			if err != nil {
				return err
			}
			return use(dir, rows)
		})
	} else {
		err = withArchive(ctx, bucket, id, scratch, func(dir string, _ *manifest) error { return use(dir, "") })
	}
	if err != nil {
		return fmt.Errorf("restore snapshot %s: %w", id, err)
	}
	return nil
}

// Restore restores the space in dir, which must not run, from the snapshot in a file, as [Replace] does.
func Restore(ctx context.Context, snapshot, dir, scratch string) error {
	return inScratch(scratch, func(aside string) error {
		if err := kine.Restore(ctx, snapshot, filepath.Join(aside, storeFile)); err != nil {
			return err
		}
		return place(ctx, aside, dir)
	})
}

// Place replaces the store of the space in dir, which must not run, by the one in a file, which is moved. At each
// moment, the store is the old one or the new one. The old one is deleted.
func Place(store, dir, scratch string) error {
	return inScratch(scratch, func(aside string) error {
		moved := filepath.Join(aside, storeFile)
		if err := errors.Join(os.Rename(store, moved), os.MkdirAll(dir, 0o700)); err != nil {
			return err
		}
		if err := errors.Join(fsutil.SyncDir(filepath.Dir(dir)), move(aside, dir)); err != nil {
			return err
		}
		for _, log := range []string{"", "-wal", "-journal"} {
			if err := os.Remove(filepath.Join(dir, replacedFile+log)); err != nil && !errors.Is(err, os.ErrNotExist) {
				return err
			}
		}
		return nil
	})
}

// inScratch calls do with a new temporary directory.
func inScratch(scratch string, do func(dir string) error) error {
	if err := os.MkdirAll(scratch, 0o700); err != nil {
		return err
	}
	dir, err := os.MkdirTemp(scratch, "restore-*") // mode 0700
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	return do(dir)
}

// withFetched calls do with a directory that contains a snapshot's files, whose store has been checked.
func withFetched(ctx context.Context, bucket *Bucket, id ID, scratch string, do func(dir string) error) error {
	return withArchive(ctx, bucket, id, scratch, func(dir string, m *manifest) error {
		if m.Elsewhere && !bucket.trusted {
			return ErrElsewhere
		}
		snapshot := filepath.Join(dir, "snapshot.db")
		if err := os.Rename(filepath.Join(dir, storeFile), snapshot); err != nil {
			return err
		}
		if err := kine.Restore(ctx, snapshot, filepath.Join(dir, storeFile)); err != nil {
			return err
		}
		return do(dir)
	})
}

// withArchive calls do with a directory that contains a snapshot's files, which have not been checked further.
func withArchive(ctx context.Context, bucket *Bucket, id ID, scratch string, do func(dir string, m *manifest) error) error {
	return inScratch(scratch, func(dir string) error {
		if id.Latest {
			m, err := bucket.Replica(id.Space).fetch(ctx, id, dir, bucket.trusted)
			if err != nil {
				return err
			}
			return do(dir, m)
		}
		archive, err := bucket.get(ctx, id.key())
		if err != nil {
			return err
		}
		defer archive.Close()
		m, err := unpack(archive, dir)
		if err != nil {
			return err
		}
		if m.Space != id.Space {
			return fmt.Errorf("%w: it is one of space %s; somebody has moved it", ErrDamaged, m.Space)
		}
		return do(dir, m)
	})
}

// storeIDFile is the file with the ID of a store. A directory without it is not one of a space.
const storeIDFile = "store.id"

// replace moves what was restored into the directory of a space. If that was lost, store.id comes last, so that nobody takes a directory without
// the store for that of the space.
func replace(ctx context.Context, from, dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	bring := func(name string) error {
		if !exists(filepath.Join(from, name)) {
			return nil
		}
		return os.Rename(filepath.Join(from, name), filepath.Join(dir, name))
	}
	lost := !exists(filepath.Join(dir, storeIDFile))
	if lost { // there may be one of an earlier attempt
		if err := bring(movesFile); err != nil {
			return err
		}
	}
	for _, name := range identityFiles {
		if name == storeIDFile || exists(filepath.Join(dir, name)) {
			continue
		}
		if err := bring(name); err != nil {
			return err
		}
	}
	if err := fsutil.SyncDir(dir); err != nil {
		return err
	}
	if err := place(ctx, from, dir); err != nil || !lost {
		return err
	}
	return errors.Join(bring(storeIDFile), fsutil.SyncDir(dir))
}

// place moves the store in from to dir. At each moment, the store there is the old one, with everything that was
// written to it, or the new one.
func place(ctx context.Context, from, dir string) error {
	if err := errors.Join(os.MkdirAll(dir, 0o700), fsutil.SyncDir(filepath.Dir(dir))); err != nil {
		return err
	}
	if err := follow(ctx, filepath.Join(from, storeFile), filepath.Join(dir, storeFile)); err != nil {
		return err
	}
	if err := move(from, dir); err != nil {
		return err
	}
	return UnmarkReceived(dir)
}

func move(from, dir string) error {
	path, replaced := filepath.Join(dir, storeFile), filepath.Join(dir, replacedFile)
	lock, err := kine.Lock(path)
	if err != nil {
		return err
	}
	defer lock.Close()
	for _, old := range []string{replaced, replaced + "-wal", replaced + "-journal", path + "-shm"} {
		if err := os.Remove(old); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	// The old store gets a second name before it loses its own, so that there is always a store: without one, a start
	// would create a new space.
	if err := os.Link(path, replaced); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	for _, log := range []string{"-wal", "-journal"} { // of a damaged store
		if err := os.Rename(path+log, replaced+log); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	if err := os.Rename(filepath.Join(from, storeFile), path); err != nil {
		return err
	}
	if err := fsutil.SyncDir(dir); err != nil {
		return fmt.Errorf("the new store is in its place, but the disk does not confirm it, so look which one is there after a crash: %w", err)
	}
	return nil
}

// follow makes the revisions of the store at path continue after those of the old one, so that no revision has two
// meanings for clients that watched the old one. It does not open an old one that came from a pod. It also moves the write-ahead log of an old store that was not closed
// cleanly into its file, because place moves only the file.
//
// An old store that can't be read, but isn't damaged, for example on a full disk, may be sound, and stays.
func follow(ctx context.Context, path, old string) error {
	if !exists(old) {
		return nil
	}
	past, err := int64(0), ErrElsewhere
	if !IsReceived(filepath.Dir(old)) {
		past, err = revision(ctx, old)
	}
	if past, err = passed(past, err, time.Now()); err != nil {
		return fmt.Errorf("read the store to replace, which did not change: %w; repair it, and try again", err)
	}
	return kine.Advance(ctx, path, past)
}

// passed returns a revision that a store has not exceeded, given the result of reading its revision. The revision of a
// damaged store, or of one that must not be opened, is unknown, and earlier restores may have increased it far beyond that of the snapshot. But it is less
// than the time in nanoseconds, even if an earlier call has set it to that: a write takes longer than the nanosecond
// for which it counts, and a restore, with the start of the space, longer than the second for which it counts.
func passed(revision int64, err error, now time.Time) (int64, error) {
	if errors.Is(err, kine.ErrDamaged) || errors.Is(err, kine.ErrNotStore) || errors.Is(err, ErrElsewhere) {
		return now.UnixNano(), nil
	}
	return revision, err
}

// revision returns the revision of the store at path, and closes it cleanly.
func revision(ctx context.Context, path string) (int64, error) {
	store, err := kine.Open(ctx, kine.Options{Path: path, Name: filepath.Base(filepath.Dir(path))})
	if err != nil {
		return 0, err
	}
	stats, err := store.Stats(ctx)
	return stats.Revision, errors.Join(err, store.Close())
}
