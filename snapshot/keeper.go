// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/berth-dev/berth/internal/storemark"
	"github.com/berth-dev/berth/kine"
)

// Spaces are the spaces of which snapshots are taken.
type Spaces interface {
	// Names returns the names of the existing spaces.
	Names() []string
	// Snapshot writes the store of a space that is awake to path, where no file may exist. It fails with [ErrAsleep] if
	// the space sleeps. elsewhere reports whether another process has sent the store.
	Snapshot(ctx context.Context, space, path string) (elsewhere bool, err error)
	// Revision returns the revision of the last write to the store of a space; 0 if the space sleeps.
	Revision(space string) int64
	// Wake wakes a space.
	Wake(ctx context.Context, space string) error
}

var (
	// ErrAsleep is returned for a space that sleeps.
	ErrAsleep = errors.New("space is asleep")
	// errMoved means that a store was written while it was copied.
	errMoved = errors.New("the space woke up while it was copied")
)

// These are the results of an attempt, for [Config].Observe.
const (
	Taken     = "taken"
	Unchanged = "unchanged"
	Failed    = "failed"
)

// mostReceived is how many spaces that run elsewhere may send their stores at once.
const mostReceived = 4

// Config configures a keeper.
type Config struct {
	// Dir contains a directory for each space.
	Dir string
	// Scratch is the directory for incomplete archives. It is emptied at the start.
	Scratch string
	Spaces  Spaces
	// Bucket, Every, and Keep are the schedule of spaces without one of their own; see [Schedule].
	Bucket *Bucket
	Every  time.Duration
	Keep   int
	// Schedule, if set, returns the schedule of a space. It is called often, and the result may change. Its buckets
	// must be Bucket or one of Others, and always the same values.
	Schedule func(space string) Schedule
	Others   []*Bucket
	// Elsewhere, if set, reports whether a space runs in another process, which sends its store. That may be slow, or
	// somebody may have taken over the process, so it must not delay other spaces.
	Elsewhere func(space string) bool
	// Foreign means that these processes are on other machines, so that their stores have never been opened here.
	Foreign bool
	// Server, if set, returns the database server with the store of a space; nil if it is a file.
	Server func(ctx context.Context, space string) (*kine.Server, error)
	// Volume is the file system of Scratch. If it is nil, archives are written until it is full.
	Volume *kine.Volume
	// WakeTimeout limits how long a space may take to wake for a snapshot, because others wait for theirs. Default: one
	// minute.
	WakeTimeout time.Duration
	// Observe, if set, is called with the result of each attempt.
	Observe func(space, result string)
	Clock   clock.Clock // the system clock if nil
	Logger  klog.Logger
}

const defaultWakeTimeout = time.Minute

// Keeper takes snapshots. It is safe for concurrent use.
type Keeper struct {
	config Config

	taking     chan struct{}  // has a value while a snapshot is taken; one at a time, because the disk is the bottleneck
	receiving  chan struct{}  // has a value for each store that is being received
	background sync.WaitGroup // of snapshots of spaces that run elsewhere

	mu sync.Mutex
	// turns have a value while the store of a space that runs elsewhere is received.
	turns map[string]chan struct{}
	busy  map[string]bool  // spaces whose scheduled snapshots are now taken in the background
	kept  map[string]*kept // existing spaces with a schedule
	// earlier are the times of the newest snapshots that an earlier process took, until they are used.
	earlier map[*Bucket]map[string]time.Time
}

// NewKeeper returns a keeper, which starts with [Keeper.Run].
func NewKeeper(c Config) (*Keeper, error) {
	if c.Clock == nil {
		c.Clock = clock.RealClock{}
	}
	if c.WakeTimeout <= 0 {
		c.WakeTimeout = defaultWakeTimeout
	}
	if err := os.RemoveAll(c.Scratch); err != nil {
		return nil, fmt.Errorf("prepare for snapshots: %w", err)
	}
	if err := os.MkdirAll(c.Scratch, 0o700); err != nil {
		return nil, fmt.Errorf("prepare for snapshots: %w", err)
	}
	return &Keeper{
		config: c, taking: make(chan struct{}, 1), receiving: make(chan struct{}, mostReceived), turns: map[string]chan struct{}{}, busy: map[string]bool{}, kept: map[string]*kept{},
		earlier: map[*Bucket]map[string]time.Time{},
	}, nil
}

// Run takes scheduled snapshots of all spaces until ctx ends. After a restart, it continues the schedule of each space
// from its newest snapshot.
func (k *Keeper) Run(ctx context.Context) {
	defer k.background.Wait()
	k.resume(ctx)
	for k.pause(ctx, k.round(ctx)) {
	}
}

// pause waits, and reports whether ctx has not ended.
func (k *Keeper) pause(ctx context.Context, wait time.Duration) bool {
	if wait > 0 {
		timer := k.config.Clock.NewTimer(wait)
		defer timer.Stop()
		select {
		case <-ctx.Done():
		case <-timer.C():
		}
	}
	return ctx.Err() == nil
}

// keep takes a snapshot of a space if the space has changed since the last one, and deletes old ones.
func (k *Keeper) keep(ctx context.Context, space string) {
	begun := k.config.Clock.Now()
	result, err := k.keepOne(ctx, space, k.schedule(space))
	if err != nil {
		result = Failed
		k.config.Logger.Error(err, "Scheduled snapshot failed; Berth retries at the next scheduled time, or after an hour", "space", space)
	}
	k.note(space, func(one *kept) { one.last, one.failed = begun, err != nil })
	if k.config.Observe != nil {
		k.config.Observe(space, result)
	}
}

func (k *Keeper) keepOne(ctx context.Context, space string, s Schedule) (result string, err error) {
	if s.Bucket == nil { // the schedule was removed in the meantime
		return Unchanged, nil
	}
	revision := k.config.Spaces.Revision(space)
	infos, err := s.Bucket.List(ctx, space)
	if err != nil {
		return "", err
	}
	if len(infos) > 0 && k.unchanged(space, revision, infos[0].Time) {
		return Unchanged, nil
	}
	if _, err := k.Take(ctx, space, s.Bucket); err != nil {
		return "", err
	}
	k.note(space, func(one *kept) { one.revision = revision })
	return Taken, s.Bucket.Prune(ctx, space, s.Keep)
}

// unchanged reports whether a space has not changed since its last snapshot.
func (k *Keeper) unchanged(space string, revision int64, last time.Time) (is bool) {
	if revision > 0 {
		k.note(space, func(one *kept) { is = one.revision == revision })
		return is
	}
	path := filepath.Join(k.config.Dir, space, storeFile)
	if !exists(path) {
		path = storemark.Path(filepath.Dir(path))
	}
	info, err := os.Stat(path)
	return err == nil && info.ModTime().Before(last) && !exists(path+"-wal")
}

// Take takes a snapshot of a space, awake or asleep, whether it has changed or not, and stores it in bucket. One
// snapshot is taken at a time; others wait, or return when their ctx ends. If a space runs elsewhere, its store is
// received before that wait.
func (k *Keeper) Take(ctx context.Context, space string, bucket *Bucket) (Info, error) {
	id, size, err := k.take(ctx, space, bucket)
	if err != nil {
		return Info{}, fmt.Errorf("take a snapshot of space %s to %s: %w", space, bucket, err)
	}
	return Info{ID: id.String(), Space: space, Time: id.Time, Bytes: size}, nil
}

// elsewhere reports whether a space runs in another process.
func (k *Keeper) elsewhere(space string) bool {
	return k.config.Elsewhere != nil && k.config.Elsewhere(space)
}

// turn returns the turn of a space that runs elsewhere.
func (k *Keeper) turn(space string) chan struct{} {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.turns[space] == nil {
		k.turns[space] = make(chan struct{}, 1)
	}
	return k.turns[space]
}

// await waits for a turn until ctx ends.
func await(ctx context.Context, turn chan struct{}) (end func(), err error) {
	select {
	case turn <- struct{}{}:
		return func() { <-turn }, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("after another one: %w", context.Cause(ctx))
	}
}

func (k *Keeper) take(ctx context.Context, space string, bucket *Bucket) (id ID, size int64, err error) {
	elsewhere, end, err := k.awaitTurn(ctx, space)
	if err != nil {
		return ID{}, 0, err
	}
	defer end()
	id = ID{Space: space, Time: k.config.Clock.Now().UTC().Truncate(time.Millisecond)}
	scratch, err := os.MkdirTemp(k.config.Scratch, "take-*") // mode 0700
	if err != nil {
		return ID{}, 0, err
	}
	defer os.RemoveAll(scratch)
	store := filepath.Join(scratch, storeFile)
	foreign, err := k.copyInTurn(ctx, elsewhere, id.Space, store)
	if err != nil {
		return ID{}, 0, err
	}
	if elsewhere {
		end, err := await(ctx, k.taking)
		if err != nil {
			return ID{}, 0, err
		}
		defer end()
	}
	// The archive may have as many bytes as the store, which may not be possible to compress.
	packed, err := os.Stat(store)
	if err != nil {
		return ID{}, 0, err
	}
	written, err := k.config.Volume.Reserve(packed.Size(), foreign)
	if err != nil {
		return ID{}, 0, fmt.Errorf("write the archive: %w", err)
	}
	defer written()
	archive, err := os.OpenFile(filepath.Join(scratch, "archive"), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return ID{}, 0, err
	}
	defer archive.Close()
	if err := pack(ctx, archive, id, store, filepath.Join(k.config.Dir, id.Space), foreign); err != nil {
		return ID{}, 0, err
	}
	if size, err = archive.Seek(0, 1); err != nil {
		return ID{}, 0, err
	}
	if _, err = archive.Seek(0, 0); err != nil {
		return ID{}, 0, err
	}
	return id, size, bucket.put(ctx, id.key(), archive, size)
}

// awaitTurn waits until a snapshot of a space may be taken. elsewhere reports whether the space runs in another process then:
// while such a process sends its store, other spaces don't wait for it.
func (k *Keeper) awaitTurn(ctx context.Context, space string) (elsewhere bool, end func(), err error) {
	for {
		elsewhere = k.elsewhere(space)
		turn := k.taking
		if elsewhere {
			turn = k.turn(space)
		}
		if end, err = await(ctx, turn); err != nil {
			return false, nil, err
		}
		if k.elsewhere(space) == elsewhere {
			return elsewhere, end, nil
		}
		end() // it has moved meanwhile
	}
}

// copyInTurn is copyStore, but only a few spaces that run elsewhere send their stores at once, because they fill the
// scratch directory.
func (k *Keeper) copyInTurn(ctx context.Context, elsewhere bool, space, to string) (foreign bool, err error) {
	if elsewhere {
		end, err := await(ctx, k.receiving)
		if err != nil {
			return false, err
		}
		defer end()
	}
	return k.copyStore(ctx, space, to)
}

// Copy copies the store of a space, awake or asleep, to a new file.
func (k *Keeper) Copy(ctx context.Context, space, to string) error {
	if _, err := k.copyStore(ctx, space, to); err != nil {
		return fmt.Errorf("copy the store of space %s: %w", space, err)
	}
	return nil
}

// copyStore copies the store of a space. A space that is awake writes the copy itself. If it sleeps, the file is
// copied, because nobody writes it. If the space wakes or goes to sleep in the meantime, copyStore retries. foreign
// reports whether the copy is from a process on another machine.
func (k *Keeper) copyStore(ctx context.Context, space, to string) (foreign bool, err error) {
	const attempts = 5
	path := filepath.Join(k.config.Dir, space, storeFile)
	for range attempts {
		received := IsReceived(filepath.Dir(path)) // before the copy: the mark goes when the store goes to a pod
		sent, err := k.config.Spaces.Snapshot(ctx, space, to)
		if !errors.Is(err, ErrAsleep) {
			return sent && (k.config.Foreign || received), err
		}
		if !exists(path) && storemark.Exists(filepath.Dir(path)) {
			return false, k.copyFromServer(ctx, space, to)
		}
		if exists(path + "-wal") {
			// It was not closed cleanly, so only the store itself can read it.
			if err := k.wake(ctx, space); err != nil {
				return false, err
			}
			continue
		}
		if err = copyAtRest(path, to); err == nil {
			if received { // whoever wrote it may have made it harmful to open
				return true, nil
			}
			return false, examine(ctx, space, to)
		}
		if !errors.Is(err, errMoved) {
			return false, err
		}
	}
	return false, err
}

// copyFromServer copies the store of a space that sleeps, and whose store is in a database server.
func (k *Keeper) copyFromServer(ctx context.Context, space, to string) error {
	if k.config.Server == nil {
		return fmt.Errorf("the store of space %s is in a database server", space)
	}
	if IsReceived(filepath.Join(k.config.Dir, space)) { // its pod may have written what takes any memory to read
		return fmt.Errorf("the pod of space %s may have written its database, and only the pod copies that; set spec.isolation to Dedicated", space)
	}
	server, err := k.config.Server(ctx, space)
	if err != nil {
		return err
	}
	if server == nil {
		return fmt.Errorf("the store of space %s is in a database server, and spec.store has none", space)
	}
	return kine.CopyServer(ctx, space, *server, to)
}

// wake wakes a space, with a time limit, so that a space that has to wait for others to start does not block all
// snapshots.
func (k *Keeper) wake(ctx context.Context, space string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, k.config.WakeTimeout, fmt.Errorf("not awake within %s", k.config.WakeTimeout))
	defer cancel()
	return k.config.Spaces.Wake(ctx, space)
}

// examine checks whether a copy is a sound store, so that a damaged one does not replace a sound one in a bucket.
func examine(ctx context.Context, space, path string) error {
	store, err := kine.Open(ctx, kine.Options{Path: path, Name: space})
	if err != nil {
		return err
	}
	return store.Close()
}
