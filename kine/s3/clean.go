// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package s3

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/berth-dev/berth/internal/safego"
	"github.com/berth-dev/berth/kine/mirror"
)

// removers is how many objects are deleted at once.
const removers = 8

// clean deletes what the log doesn't consist of any more. What it deletes was there while this process had the log, and was already
// replaced. Nothing gets its name later, so it doesn't matter how late a deletion takes effect.
func (l *Log) clean(ctx context.Context) error {
	own := l.last()
	listed, err := l.bucket.list(ctx, "", 0)
	if err != nil {
		return err
	}
	if err := l.checkStill(ctx, own); err != nil {
		return err
	}
	keep := l.needed()
	if err := l.removeAll(ctx, slices.DeleteFunc(listed, keep.keeps)); err != nil {
		return err
	}
	l.knowing.Lock()
	defer l.knowing.Unlock()
	l.untidy, l.compactAt = false, 0
	return nil
}

// checkStill fails if this process doesn't have the log any more.
func (l *Log) checkStill(ctx context.Context, own position) error {
	epoch, err := l.Epoch(ctx)
	if err != nil {
		return err
	}
	return (&mirror.Meta{Epoch: epoch}).CheckEpoch(l.String(), own.Epoch)
}

// needed returns what the log consists of now.
func (l *Log) needed() *kept {
	k := &kept{names: map[string]bool{}, takeovers: map[int64]bool{}, since: l.now().Add(-l.limits.keep)}
	l.knowing.Lock()
	defer l.knowing.Unlock()
	maps.Copy(k.names, l.uploading)
	maps.Copy(k.names, l.unsure)
	k.end = l.end
	k.names[k.end.Base.Name], k.names[k.end.Files] = true, true
	for _, t := range l.takeovers {
		k.takeovers[t.Number] = true
	}
	return k
}

// kept says which objects are needed.
type kept struct {
	end       position
	names     map[string]bool // of bases and files
	takeovers map[int64]bool
	since     time.Time // before it, no takeover is needed
}

// keeps reports whether an object is needed, or is of another program.
func (k *kept) keeps(o object) bool {
	dir, rest, _ := strings.Cut(o.key, "/")
	name, _, _ := strings.Cut(rest, "/")
	switch dir + "/" {
	case baseDir, filesDir:
		return k.names[name]
	case logDir:
		n, ok := numberOf(k.end.log, o.key)
		return ok && (n > k.end.Base.Number || n == k.end.Start || k.takeovers[n] && o.modified.After(k.since))
	case wantedDir:
		return o.key > wantedKey(k.end.Epoch)
	}
	return true
}

// removeAll deletes objects, several at once.
func (l *Log) removeAll(ctx context.Context, objects []object) error {
	var removing sync.WaitGroup
	errs := make([]error, removers)
	for i := range removers {
		remove := func() {
			for at := i; at < len(objects) && errs[i] == nil; at += removers {
				errs[i] = l.bucket.remove(ctx, objects[at].key)
			}
		}
		safego.Go(&removing, "delete objects", remove, func(err error) { errs[i] = err })
	}
	removing.Wait()
	return errors.Join(errs...)
}

// Drop deletes everything, and the object store at last.
func (l *Log) Drop(ctx context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.change(ctx, func(*record) {}, nil); err != nil { // nobody else has it
		return err
	}
	end := l.last()
	listed, err := l.bucket.list(ctx, "", 0)
	if err != nil {
		return err
	}
	if err := l.checkStill(ctx, end); err != nil {
		return err
	}
	start, last := recordKey(end.log, end.Start), recordKey(end.log, end.Number)
	all := slices.DeleteFunc(listed, func(o object) bool { return !ours(o.key) || o.key == start || o.key == last })
	if err := l.removeAll(ctx, all); err != nil {
		return err
	}
	if err := l.checkStill(ctx, end); err != nil {
		return err
	}
	for _, key := range []string{last, start, storeKey} { // after each of them, another Drop can go on
		if err := l.bucket.remove(ctx, key); err != nil {
			return err
		}
	}
	l.lost = errors.New("it was deleted")
	return nil
}

// ours reports whether a key is one of a log.
func ours(key string) bool {
	return strings.HasPrefix(key, logDir) || strings.HasPrefix(key, baseDir) || strings.HasPrefix(key, filesDir) || strings.HasPrefix(key, wantedDir)
}
