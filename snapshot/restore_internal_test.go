// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/etcd/client/v3/kubernetes"

	"github.com/berth-dev/berth/kine"
)

// killed makes a store in dir as a kill leaves one that holds key: in its log.
func killed(t *testing.T, dir, key string) {
	t.Helper()
	was := filepath.Join(t.TempDir(), storeFile)
	store, err := kine.Open(t.Context(), kine.Options{Path: was})
	if err != nil {
		t.Fatal(err)
	}
	put, err := store.Client().Kubernetes.OptimisticPut(t.Context(), key, []byte("x"), 0, kubernetes.PutOptions{})
	if err != nil || !put.Succeeded {
		t.Fatal(put, err)
	}
	for _, suffix := range []string{"", "-wal"} {
		if err := copyFile(was+suffix, filepath.Join(dir, storeFile+suffix)); err != nil {
			t.Fatal(err)
		}
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
}

func holds(t *testing.T, path, key string) bool {
	t.Helper()
	store, err := kine.Open(t.Context(), kine.Options{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	got, err := store.Client().Kubernetes.Get(t.Context(), key, kubernetes.GetOptions{})
	if err = errors.Join(err, store.Close()); err != nil {
		t.Fatal(err)
	}
	return got.KV != nil
}

// D1, D2: cut off at its last step, when all that can be is undone of the old
// store, a restore leaves that with all that was written to it. Done again, it
// keeps it beside the new one.
func TestARestoreThatIsCutOffLosesNothing(t *testing.T) {
	from, dir := t.TempDir(), t.TempDir()
	killed(t, dir, "/registry/old")
	killed(t, from, "/registry/new")
	if !holds(t, filepath.Join(from, storeFile), "/registry/new") { // it is in order now
		t.Fatal("the new store does not hold what it should")
	}
	fresh, path := filepath.Join(from, storeFile), filepath.Join(dir, storeFile)
	if err := follow(t.Context(), fresh, path); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(fresh, fresh+".away"); err != nil {
		t.Fatal(err)
	}
	if err := move(from, dir); !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("its last step: %v", err)
	}
	if !holds(t, path, "/registry/old") {
		t.Error("what was written to the old store is lost")
	}
	if err := os.Rename(fresh+".away", fresh); err != nil {
		t.Fatal(err)
	}
	if err := place(t.Context(), from, dir); err != nil {
		t.Fatal(err)
	}
	if !holds(t, path, "/registry/new") || holds(t, path, "/registry/old") {
		t.Error("the new store has not taken the place of the old one")
	}
	if !holds(t, filepath.Join(dir, replacedFile), "/registry/old") {
		t.Error("the old store was not kept")
	}
}

// A store that can't be read, but isn't damaged, may be sound: it is not
// replaced, and what is in its log stays with it.
func TestAStoreThatCannotBeReadNowIsNotReplaced(t *testing.T) {
	from, dir := t.TempDir(), t.TempDir()
	killed(t, from, "/registry/new")
	killed(t, dir, "/registry/old")
	path := filepath.Join(dir, storeFile)
	if !holds(t, filepath.Join(from, storeFile), "/registry/new") { // it is in order now
		t.Fatal("the new store does not hold what it should")
	}
	if err := os.Mkdir(path+"-shm", 0o700); err != nil { // SQLite has no place for the log's index
		t.Fatal(err)
	}
	if err := place(t.Context(), from, dir); err == nil {
		t.Error("it was replaced")
	}
	if err := os.Remove(path + "-shm"); err != nil {
		t.Fatal(err)
	}
	if !holds(t, path, "/registry/old") {
		t.Error("what was written to it is lost")
	}
}

// ending is a context that ends once it has been asked so often, by a call that
// it is given to.
type ending struct {
	context.Context
	end  context.CancelFunc
	left atomic.Int64
}

func (e *ending) count() {
	if e.left.Add(-1) == 0 {
		e.end()
	}
}

func (e *ending) Err() error {
	e.count()
	return e.Context.Err()
}

func (e *ending) Done() <-chan struct{} {
	e.count()
	return e.Context.Done()
}

// D2: at whatever moment who asked goes, the old store is left closed: a space
// goes back to it.
func TestARestoreThatIsGivenUpLeavesTheOldStoreClosed(t *testing.T) {
	from, dir := t.TempDir(), t.TempDir()
	killed(t, from, "/registry/new")
	killed(t, dir, "/registry/old")
	fresh, old := filepath.Join(from, storeFile), filepath.Join(dir, storeFile)
	if !holds(t, fresh, "/registry/new") {
		t.Fatal("the new store does not hold what it should")
	}
	var given int
	for moment := int64(1); ; moment++ {
		ctx := &ending{}
		ctx.Context, ctx.end = context.WithCancel(t.Context())
		ctx.left.Store(moment)
		err := follow(ctx, fresh, old)
		whole := ctx.left.Load() > 0
		ctx.end()
		lock, lockErr := kine.Lock(old)
		if lockErr != nil {
			t.Fatalf("given up when asked %d times (%v): %v", moment, err, lockErr)
		}
		if err := lock.Close(); err != nil {
			t.Fatal(err)
		}
		if err != nil {
			given++
		}
		if whole {
			if err != nil {
				t.Fatal(err)
			}
			break
		}
	}
	if given == 0 {
		t.Error("it was never given up")
	}
	if !holds(t, old, "/registry/old") {
		t.Error("what was written to the old store is lost")
	}
}

// D1: a store is damaged at whatever step that was found, and in whatever company.
func TestADamagedStoreDoesNotRefuseItsReplacement(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	errDisk := errors.New("disk I/O error")
	for reason, c := range map[string]struct {
		err  error
		want int64
		fail bool
	}{
		"it is sound":                        {nil, 7, false},
		"found when it was opened":           {fmt.Errorf("open store: %w", kine.ErrDamaged), now.UnixNano(), false},
		"none at all":                        {fmt.Errorf("open store: %w", kine.ErrNotStore), now.UnixNano(), false},
		"found later, and closed with":       {errors.Join(fmt.Errorf("read figures: %w", kine.ErrDamaged), errDisk), now.UnixNano(), false},
		"found when it was closed":           {errors.Join(nil, fmt.Errorf("close store: %w", kine.ErrDamaged)), now.UnixNano(), false},
		"somebody has it open":               {kine.ErrInUse, 0, true},
		"the disk fails":                     {errDisk, 0, true},
		"who asked for the restore has gone": {context.Canceled, 0, true},
	} {
		past, err := passed(7, c.err, now)
		if (err != nil) != c.fail || !c.fail && past != c.want || c.fail && !errors.Is(err, c.err) {
			t.Errorf("%s: %d (%v)", reason, past, err)
		}
	}
}

// D2: a restore of a lost directory that fails leaves none that counts as that of the space without its store.
func TestARestoreOfALostDirectoryThatFailsLeavesNoSpace(t *testing.T) {
	from, dir := t.TempDir(), t.TempDir()
	fill := func() {
		killed(t, from, "/registry/a")
		for _, name := range []string{"store.id", "node.key", movesFile} {
			if err := os.WriteFile(filepath.Join(from, name), []byte(name), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	fill()
	inTheWay := filepath.Join(dir, replacedFile, "x")
	if err := os.MkdirAll(inTheWay, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := replace(t.Context(), from, dir); err == nil {
		t.Fatal("the restore did not fail")
	}
	if exists(filepath.Join(dir, "store.id")) || exists(filepath.Join(dir, storeFile)) {
		t.Error("the directory has a store, or its ID")
	}
	if err := os.RemoveAll(filepath.Join(dir, replacedFile)); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(from); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(from, 0o700); err != nil {
		t.Fatal(err)
	}
	fill()
	if err := replace(t.Context(), from, dir); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"store.id", "node.key", movesFile, storeFile} {
		if !exists(filepath.Join(dir, name)) {
			t.Errorf("%s is missing after the next attempt", name)
		}
	}
}
