// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/internal/spacefiles"
	"github.com/berth-dev/berth/isolation"
	"github.com/berth-dev/berth/platform/datadir"
	"github.com/berth-dev/berth/platform/move"
	"github.com/berth-dev/berth/platform/peers"
	"github.com/berth-dev/berth/shard"
	"github.com/berth-dev/berth/translate"
)

// errStoreMissing is of a space that this shard is to have, and whose store another data directory had.
var errStoreMissing = errors.New("the volume of the space's shard doesn't have its store; give the shard its volume back; if it is lost and the space was replicated, restore it with " +
	"`berth snapshot restore SPACE/latest`; to begin with an empty store, into which you can restore a snapshot, remove the annotation " + translate.AnnotationStore)

// ShardOf returns the name of the shard that has a space; "" if that is this process, or not known.
func (m *Manager) ShardOf(space string) string {
	if m.applied.get(space) != nil { // the watch may be behind
		return ""
	}
	object := m.objects.Get(space)
	if to, is := m.moved.Load(space); is {
		if object == nil || object.Status.Shard == m.config.Shard { // likewise
			return to.(string)
		}
		m.moved.Delete(space)
	}
	if object != nil && object.Status.Shard != m.config.Shard {
		return object.Status.Shard
	}
	return ""
}

// Arriving returns what waits until this process serves a space that is to be here by its object, and isn't yet: it has just moved here, or its
// shard was dead. It returns nil for all others. The wait has succeeded if it returns true.
func (m *Manager) Arriving(space string) (wait func(context.Context) bool) {
	object := m.objects.Get(space)
	if object == nil || m.config.Shard == "" || m.isServed(space) || !arrives(object, m.config.Shard) {
		return nil
	}
	wait = m.arrivals.Wait(space, ptr.Deref(object.Status.Moves, 0))
	if m.isServed(space) { // since a moment ago
		m.arrivals.Served(space)
	}
	return wait
}

// isServed reports whether a space has its place, and, if that is a process of its own, whether the process serves.
func (m *Manager) isServed(space string) bool {
	process := m.processes.get(space)
	return m.applied.get(space) != nil && (process == nil || process.Serving())
}

// arrives reports whether a space that a shard doesn't serve yet comes from another one, or may.
func arrives(object *v1alpha1.Space, shard string) bool {
	return object.Status.Shard == shard && object.DeletionTimestamp.IsZero() &&
		(ptr.Deref(object.Status.Moves, 0) > 0 || object.Spec.Store.InServer() && claimedBy(object) != "")
}

// Enter implements [peers.Traffic.Enter] for the requests to spaces of this shard.
func (m *Manager) Enter(space string, lasts bool) (wait func(context.Context) bool, leave func()) {
	return m.traffic.Enter(space, lasts)
}

// Load returns what this process has, for the status of its shard.
func (m *Manager) Load() peers.Load {
	dedicated := len(m.processes.all())
	load := peers.Load{Spaces: dedicated, Awake: dedicated, Memory: shard.ResidentBytes(), Retained: m.retained()}
	for _, status := range m.shard.List() {
		load.Spaces++
		if m.shard.Space(status.Name) != nil {
			load.Awake++
		}
	}
	if memory := shard.ProcessMemory(); memory != nil {
		load.MemoryLimit = memory.Limit
	}
	if m.pods != nil || m.config.DedicatedMax == 0 {
		load.DedicatedMax = ptr.To(int32(min(m.config.DedicatedMax, math.MaxInt32))) //nolint:gosec // it fits now
	}
	return load
}

// retained returns the names of deleted spaces whose stores this process retains, at most as many as a status may have.
func (m *Manager) retained() (names []string) {
	const most = 1000
	entries, err := os.ReadDir(datadir.Retained(m.config.DataDir, ""))
	if err != nil {
		return nil // there are none, or it isn't known
	}
	for _, entry := range entries {
		if isolation.CheckSpaceName(entry.Name()) == nil && len(names) < most {
			names = append(names, entry.Name())
		}
	}
	return names
}

// Movable returns how many spaces this process has that can move to another shard, or whose moves have not ended: a space doesn't run while it
// is handed over.
func (m *Manager) Movable() int {
	names := sets.New(m.shard.Names()...)
	if m.pods != nil {
		names = names.Union(sets.KeySet(m.processes.all()))
	}
	m.moving.Range(func(name, _ any) bool {
		names.Insert(name.(string))
		return true
	})
	return names.Len()
}

// isElsewhere reports whether another shard has a space, or the operator has yet to say which one gets it.
func (m *Manager) isElsewhere(object *v1alpha1.Space) bool {
	if m.config.Shard == "" || object.Status.Shard == m.config.Shard {
		return false
	}
	if object.Status.Shard != "" {
		return true
	}
	store, err := datadir.KnownStoreID(m.config.DataDir, object.Name)
	return err != nil || store != claimedBy(object) // else, its store is here, and the platform has shards since now
}

// mayBeGone reports whether a space that isn't run may have moved away, though its object says that it is here: the watch can be behind by as much
// as a move takes, and the files of the space stay until the other shard has confirmed that it has them.
func (m *Manager) mayBeGone(object *v1alpha1.Space) bool {
	if m.config.Shard == "" || object.Status.Shard != m.config.Shard || m.applied.get(object.Name) != nil {
		return false
	}
	_, moved := m.moved.Load(object.Name)
	return moved || object.Status.MovingTo != ""
}

// isBehind reports whether the host says something else now of where a space is than the watch.
func (m *Manager) isBehind(ctx context.Context, object *v1alpha1.Space) (bool, error) {
	current := &v1alpha1.Space{}
	err := m.objects.Client.Get(ctx, client.ObjectKey{Name: object.Name}, current)
	if apierrors.IsNotFound(err) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("read Space object %s: %w", object.Name, err)
	}
	if current.UID != object.UID || current.Status.Shard != object.Status.Shard || ptr.Deref(current.Status.Moves, 0) != ptr.Deref(object.Status.Moves, 0) {
		return true, nil
	}
	m.moved.Delete(object.Name) // it has come back
	return false, nil
}

// ensureOnShard is [Manager.Ensure] for a process that is a shard. The space may be on another one, and which shard gets a new space is the
// operator's decision.
func (m *Manager) ensureOnShard(ctx context.Context, space *v1alpha1.Space) error {
	have := &v1alpha1.Space{}
	if err := m.objects.Client.Get(ctx, client.ObjectKey{Name: space.Name}, have); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("read Space object %s: %w", space.Name, err)
	}
	if have.Status.Shard == m.config.Shard || m.owns(have) && claimedBy(have) != "" {
		return m.ensureHere(ctx, space)
	}
	return m.objects.Apply(ctx, space, claimedBy(have))
}

// outdated is in the place of the number of moves in a directory that isn't current, whatever shard gets the space.
const outdated = -1

// outdate notes that a directory isn't that of the space any more, because another shard has opened the store in the database server since. It is
// removed once the database has been asked, which may be impossible for as long as the other shard lives. The keys may have been rotated there.
// A directory whose files no database has may be the only one.
func outdate(dir string) error {
	saved, err := spacefiles.Epoch(dir)
	if err != nil || saved == 0 && !servedByPod(dir) {
		return err
	}
	return datadir.SetMoves(dir, outdated)
}

// isCurrent reports whether the directory that this process has of a space is the one that counts, and not one from before a move.
func (m *Manager) isCurrent(object *v1alpha1.Space) bool {
	dir := datadir.Space(m.config.DataDir, object.Name)
	if _, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) {
		return true // it is being deleted here, or is retained
	}
	moves, err := datadir.Moves(dir)
	return err == nil && moves == ptr.Deref(object.Status.Moves, 0)
}

// hasCurrent reports whether this process has the store of a space that counts, by what the host says now.
func (m *Manager) hasCurrent(ctx context.Context, space string) (bool, error) {
	object := &v1alpha1.Space{}
	if err := m.objects.Client.Get(ctx, client.ObjectKey{Name: space}, object); err != nil {
		return false, fmt.Errorf("read Space object %s: %w", space, err)
	}
	return claimedBy(object) != "" && m.owns(object), nil
}

// countMoves has the directory of a space, if there is one, say how often the space has moved as its object does, which is none, or nobody's yet.
// The directory may be one that was restored, or was another shard's.
func (m *Manager) countMoves(ctx context.Context, space string) error {
	dir := datadir.Space(m.config.DataDir, space)
	if moves, err := datadir.Moves(dir); err != nil || moves == 0 {
		return err
	}
	object := &v1alpha1.Space{}
	if err := m.objects.Client.Get(ctx, client.ObjectKey{Name: space}, object); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("read Space object %s: %w", space, err)
	}
	if claimedBy(object) != "" {
		return nil
	}
	return datadir.SetMoves(dir, ptr.Deref(object.Status.Moves, 0))
}

// storeMissing notes on an object whose space this shard is to have that its store isn't here.
func (m *Manager) storeMissing(ctx context.Context, object *v1alpha1.Space) (again time.Duration, err error) {
	name := object.Name
	if _, is := m.moved.Load(name); is {
		return refreshInterval, nil // the watch is behind
	}
	current := &v1alpha1.Space{}
	if err := m.objects.Client.Get(ctx, client.ObjectKey{Name: name}, current); err != nil {
		return 0, client.IgnoreNotFound(err)
	}
	if current.ResourceVersion != object.ResourceVersion || m.owns(current) || m.hasArrived(current) {
		return busyRetry, nil // likewise
	}
	failure := errStoreMissing
	if has := m.whoHas(ctx, current); len(has) > 0 {
		failure = fmt.Errorf("%w; shard %s has a store of the space: if that is the one that counts, set status.shard and status.moves to those of that shard", errStoreMissing, strings.Join(has, ", "))
	}
	return refreshInterval, m.writeStatus(ctx, current, failure)
}

// whoHas returns the shards that say that they have the store of a space.
func (m *Manager) whoHas(ctx context.Context, object *v1alpha1.Space) (shards []string) {
	for _, shard := range m.env.Peers.Others() {
		asking, cancel := context.WithTimeout(ctx, requestTime)
		if has, err := move.Has(asking, m.env.Peers.Command(shard), object.Name, claimedBy(object), -1); err == nil && has {
			shards = append(shards, shard)
		}
		cancel()
	}
	return shards
}

// leftBehind removes what this shard has of a space that another shard has: the directory of one that has moved away, if a crash kept it
// from being removed, and what was received of one that did not come. Nothing is removed that the other shard may not have.
func (m *Manager) leftBehind(ctx context.Context, object *v1alpha1.Space) (again time.Duration, err error) {
	name := object.Name
	m.moved.Delete(name) // the object says it now
	dir := datadir.Space(m.config.DataDir, name)
	left := m.applied.get(name) != nil
	for _, path := range []string{dir, filepath.Join(m.received.Dir, name), datadir.Deleted(m.config.DataDir, name), datadir.Dedicated(m.config.DataDir, name)} {
		if _, err := os.Stat(path); err == nil {
			left = true
		}
	}
	if !left {
		if object.Status.MovingTo != m.config.Shard {
			m.notComing(name)
		}
		return 0, nil
	}
	end, err := m.changes.Begin(name, "being cleaned up after a move")
	if err != nil {
		return busyRetry, nil
	}
	defer end()
	current := &v1alpha1.Space{}
	if err := m.objects.Client.Get(ctx, client.ObjectKey{Name: name}, current); err != nil {
		return 0, client.IgnoreNotFound(err)
	}
	if !m.isElsewhere(current) {
		return busyRetry, nil // the watch is behind
	}
	if m.applied.get(name) != nil {
		m.logger.Info("Stopped serving a space that another shard has", "space", name, "shard", current.Status.Shard)
		process := m.processes.get(name)
		if err := m.stop(ctx, name); err != nil {
			return 0, err
		}
		if process != nil {
			process.Disconnect()
		}
		m.forget(name)
	}
	if current.Status.MovingTo != m.config.Shard {
		if err := m.received.Drop(name); err != nil {
			return 0, err
		}
		m.notComing(name)
	}
	id, err := datadir.StoreIDIn(dir)
	if err != nil || id != claimedBy(current) || current.Status.Shard == "" {
		if errors.Is(err, os.ErrNotExist) && current.Status.Shard != "" {
			return 0, errors.Join(os.RemoveAll(datadir.Deleted(m.config.DataDir, name)), os.RemoveAll(datadir.Dedicated(m.config.DataDir, name))) // what discard was removing
		}
		return 0, nil
	}
	if current.Spec.Store.InServer() {
		if m.isRestored(name) {
			m.recordEvent(ctx, current, corev1.EventTypeWarning, v1alpha1.ReasonSnapshotNotLoaded, fmt.Sprint("not-loaded-", ptr.Deref(current.Status.Moves, 0)),
				"a snapshot was restored on shard "+m.config.Shard+", which may not have loaded it before shard "+current.Status.Shard+" got the space; look whether the space has it, or restore it again")
		}
		outdated := outdate(dir) // until the database can be asked
		left, err := m.leaveFiles(ctx, current)
		if err = errors.Join(outdated, err); err == nil && !left {
			return labelRetry, nil
		}
		return 0, err
	}
	moves, err := datadir.Moves(dir)
	if err != nil {
		return 0, err
	}
	asking, cancel := context.WithTimeout(ctx, requestTime)
	defer cancel()
	has, err := move.Has(asking, m.env.Peers.Command(current.Status.Shard), name, id, moves)
	if err != nil || !has {
		m.logger.V(1).Info("Kept the files of a space that another shard has, as that one doesn't confirm it", "space", name, "shard", current.Status.Shard, "reason", fmt.Sprint(err))
		return labelRetry, nil
	}
	return 0, m.discard(name)
}
