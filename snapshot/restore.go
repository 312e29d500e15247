// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/berth-dev/berth/kine"
)

// replacedFile is a store that a restore took the place of, until the next one.
const replacedFile = storeFile + ".replaced"

// ErrElsewhere says that a snapshot is not opened in this process, as its store is from the pod of a dedicated space: a
// tenant who took that over may have written any bytes. See [Bucket.Trusted].
var ErrElsewhere = errors.New("its store is from the pod of a dedicated space, and would be opened in Berth's own process; " +
	"restore it under its own name while the space is Dedicated, or if you trust what ran in the pod, use --trust-dedicated")

// Exists tells whether a space's store is in dir, which is the space's own.
func Exists(dir string) bool { return exists(filepath.Join(dir, storeFile)) }

// Replace makes the space in spaces, a directory of spaces' directories, what it
// was when a snapshot was taken. The space must not run. Its keys stay, so that
// what was given out goes on working; if they are lost, they are the snapshot's.
// The store that was there is kept as store.db.replaced until the next time.
//
// It is done whole or not at all. A store that is damaged is replaced as well; one
// that can't be read for another reason is not.
func Replace(ctx context.Context, bucket *Bucket, id ID, spaces, scratch string) error {
	err := withFetched(ctx, bucket, id, scratch, func(from string) error {
		return replace(ctx, from, filepath.Join(spaces, id.Space))
	})
	if err != nil {
		return fmt.Errorf("restore snapshot %s: %w", id, err)
	}
	return nil
}

// Clone makes a space named as of a snapshot of another: with keys of its own,
// so that nothing that was given out for the other works. What names the other
// in its store is changed, see [Reidentify]. A space of that name that is there
// keeps its keys, and its store is kept as by [Replace]; it must not run once
// prepare, which is called when the snapshot was found sound, has returned.
//
// It is done whole or not at all, but for what prepare and reserve do.
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

// Fetch calls do with the store and the directory of a snapshot's files. The store is as it was written, and has not
// been opened: it is for others to [Restore].
func Fetch(ctx context.Context, bucket *Bucket, id ID, scratch string, do func(store, dir string) error) error {
	err := withArchive(ctx, bucket, id, scratch, func(dir string, _ *manifest) error { return do(filepath.Join(dir, storeFile), dir) })
	if err != nil {
		return fmt.Errorf("restore snapshot %s: %w", id, err)
	}
	return nil
}

// Restore makes the space in dir, which must not run, what it was when the snapshot in a file was taken. It is done as
// by [Replace].
func Restore(ctx context.Context, snapshot, dir, scratch string) error {
	return inScratch(scratch, func(aside string) error {
		if err := kine.Restore(ctx, snapshot, filepath.Join(aside, storeFile)); err != nil {
			return err
		}
		return place(ctx, aside, dir)
	})
}

// Place puts the store in a file, which goes, in the place of that of the space in dir, which must not run. At each
// moment the store there is the old one or the new one. The old one does not stay.
func Place(store, dir, scratch string) error {
	return inScratch(scratch, func(aside string) error {
		moved := filepath.Join(aside, storeFile)
		if err := errors.Join(os.Rename(store, moved), os.MkdirAll(dir, 0o700)); err != nil {
			return err
		}
		if err := errors.Join(syncDir(filepath.Dir(dir)), move(aside, dir)); err != nil {
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

// inScratch calls do with a new directory.
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

// withFetched calls do with a directory that holds a snapshot's files, whose
// store was found sound.
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

// withArchive calls do with a directory that holds a snapshot's files as they were written.
func withArchive(ctx context.Context, bucket *Bucket, id ID, scratch string, do func(dir string, m *manifest) error) error {
	return inScratch(scratch, func(dir string) error {
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

func replace(ctx context.Context, from, dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	for _, name := range identityFiles {
		if !exists(filepath.Join(dir, name)) && exists(filepath.Join(from, name)) {
			if err := os.Rename(filepath.Join(from, name), filepath.Join(dir, name)); err != nil {
				return err
			}
		}
	}
	return place(ctx, from, dir)
}

// place moves the store in from to dir. At each moment the store there is the old
// one, with all that was written to it, or the new one.
func place(ctx context.Context, from, dir string) error {
	if err := errors.Join(os.MkdirAll(dir, 0o700), syncDir(filepath.Dir(dir))); err != nil {
		return err
	}
	if err := follow(ctx, filepath.Join(from, storeFile), filepath.Join(dir, storeFile)); err != nil {
		return err
	}
	return move(from, dir)
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
	// The old store has a second name before it loses its own: at no moment is
	// there none, which a start would take for a space that is new.
	if err := os.Link(path, replaced); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	for _, log := range []string{"-wal", "-journal"} { // of one that is damaged
		if err := os.Rename(path+log, replaced+log); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	if err := os.Rename(filepath.Join(from, storeFile), path); err != nil {
		return err
	}
	if err := syncDir(dir); err != nil {
		return fmt.Errorf("the new store is in its place, but the disk does not confirm it, so look which one is there after a crash: %w", err)
	}
	return nil
}

// follow has the store at path go on after the old one, so that no revision
// stands for two things to those who watched that. And what the old one has in a
// log, as it was not closed in order, goes to its file, which place moves alone.
//
// One that can't be read, but isn't damaged, such as on a full disk, may be sound,
// and stays.
func follow(ctx context.Context, path, old string) error {
	if !exists(old) {
		return nil
	}
	past, err := revision(ctx, old)
	if past, err = passed(past, err, time.Now()); err != nil {
		return fmt.Errorf("read the store to replace, which did not change: %w; repair it, and try again", err)
	}
	return kine.Advance(ctx, path, past)
}

// passed is a revision that a store did not get beyond, given what came of asking
// it. One that is damaged, found so at whatever step, does not tell: restores, too,
// may have brought it far beyond the snapshot. It did not get to the time, also if
// that was what it was given the last time: writes take longer than the nanosecond
// that each counts for, and restores, with the wake of the space, than their second.
func passed(revision int64, err error, now time.Time) (int64, error) {
	if errors.Is(err, kine.ErrDamaged) || errors.Is(err, kine.ErrNotStore) {
		return now.UnixNano(), nil
	}
	return revision, err
}

// revision is how far the store at path got, which is left in order.
func revision(ctx context.Context, path string) (int64, error) {
	store, err := kine.Open(ctx, kine.Options{Path: path, Name: filepath.Base(filepath.Dir(path))})
	if err != nil {
		return 0, err
	}
	stats, err := store.Stats(ctx)
	return stats.Revision, errors.Join(err, store.Close())
}
