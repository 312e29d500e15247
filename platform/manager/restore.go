// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/isolation"
	"github.com/berth-dev/berth/platform/datadir"
	"github.com/berth-dev/berth/platform/spaceobjects"
	"github.com/berth-dev/berth/shard"
	"github.com/berth-dev/berth/snapshot"
)

// restorable is what a restore needs of a shard: it stops spaces, and gives them their places back.
type restorable interface {
	Status(space string) (shard.Status, bool)
	Hold(space string) (release func())
	StopSpace(ctx context.Context, space string) error
	Prepare(ctx context.Context, space string) error
	AdoptServices(ctx context.Context, space string, vs []*corev1.Service) ([]*corev1.Service, error)
	Add(space string) error
	WarmUp(space string)
	Wake(ctx context.Context, space string) error
}

// Restored is the result of a restore.
type Restored struct {
	Space    string           `json:"space"`
	Snapshot string           `json:"snapshot"`
	Changes  snapshot.Changes `json:"changes"` // what is different in a space with another name
}

// restore restores a space from a snapshot: the space of the snapshot, or the space as. If that exists, replace must be
// set.
func (s *snapshots) restore(ctx context.Context, bucket *snapshot.Bucket, name, as string, replace bool) (*Restored, error) {
	id, err := snapshot.ParseID(name)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	if id, err = s.ofSpace(ctx, id); err != nil {
		return nil, err
	}
	if id, err = bucket.Find(ctx, id); err != nil {
		return nil, err
	}
	if err := isolation.CheckSpaceName(cmp.Or(as, id.Space)); err != nil {
		if as != "" {
			err = fmt.Errorf("--as: %w", err)
		}
		return nil, err
	}
	err = s.checkOwn(ctx, cmp.Or(as, id.Space))
	if errors.Is(err, spaceobjects.ErrForeign) && as == "" && id.Latest {
		return s.restoreLost(ctx, bucket, id, err)
	}
	if err != nil {
		return nil, err
	}
	result := &Restored{Space: cmp.Or(as, id.Space), Snapshot: id.String()}
	done, err := s.changes.Begin(result.Space, "being restored")
	if err != nil {
		return nil, err
	}
	defer done()
	end, err := s.take(result.Space) // now that the space can't move to another process
	if err != nil {
		return nil, apierrors.NewConflict(v1alpha1.Resource("spaces"), result.Space, err)
	}
	defer end()
	defer s.shard.Hold(result.Space)()
	if as == "" {
		err = s.replace(ctx, bucket, id)
	} else {
		result.Changes, err = s.clone(ctx, bucket, id, as, replace)
	}
	if err == nil {
		err = s.ensure(ctx, result.Space)
	}
	if err != nil {
		return nil, err
	}
	wake := func(ctx context.Context) error { return s.shard.Wake(ctx, result.Space) }
	if process := s.elsewhere(result.Space); process != nil {
		wake = process.Wake
	}
	if err := wake(ctx); err != nil {
		return nil, fmt.Errorf("space %s was restored from snapshot %s, but does not wake yet: %w; Berth retries, see `berth spaces`", result.Space, result.Snapshot, err)
	}
	return result, nil
}

// ofSpace has the name SPACE/latest mean the replica of the store that the space of this platform has, or had. Another one may be of an
// earlier space of that name, which another tenant had. If nothing is left of the space, id stays as it is.
func (s *snapshots) ofSpace(ctx context.Context, id snapshot.ID) (snapshot.ID, error) {
	if !id.Latest || id.Store != "" {
		return id, nil
	}
	store, err := datadir.KnownStoreID(s.dataDir, id.Space)
	if errors.Is(err, os.ErrNotExist) {
		store, _, err = s.lost(ctx, id.Space)
		err = client.IgnoreNotFound(err)
	}
	id.Store = store
	return id, err
}

// restoreLost restores a space whose object says that this process had its store, which is not there any more, from the replica of that very
// store. Then, the space is this process's again, and starts with the spec of its object. It fails with foreign if the store was not lost.
func (s *snapshots) restoreLost(ctx context.Context, bucket *snapshot.Bucket, id snapshot.ID, foreign error) (*Restored, error) {
	store, moves, err := s.lost(ctx, id.Space)
	if err != nil {
		return nil, err
	}
	if store == "" || id.Store != "" && id.Store != store {
		return nil, foreign
	}
	id.Store = store
	done, err := s.changes.Begin(id.Space, "being restored")
	if err != nil {
		return nil, err
	}
	defer done()
	end, err := s.take(id.Space)
	if err != nil {
		return nil, apierrors.NewConflict(v1alpha1.Resource("spaces"), id.Space, err)
	}
	defer end()
	if err := snapshot.Recover(ctx, bucket, id, moves, datadir.Spaces(s.dataDir), datadir.Scratch(s.dataDir)); err != nil {
		return nil, err
	}
	s.restored(id.Space)
	return &Restored{Space: id.Space, Snapshot: id.String()}, nil
}

// lostStore returns the ID of the store that the object of a space was made for, and how often the space has moved, if this process should have
// that store, and has nothing of the space; "" otherwise.
func (m *Manager) lostStore(ctx context.Context, space string) (store string, moves int64, err error) {
	object := &v1alpha1.Space{}
	if err := m.objects.Client.Get(ctx, client.ObjectKey{Name: space}, object); err != nil {
		return "", 0, fmt.Errorf("read Space object %s: %w", space, err)
	}
	_, err = datadir.KnownStoreID(m.config.DataDir, space)
	if !errors.Is(err, os.ErrNotExist) || m.isElsewhere(object) || m.hasArrived(object) || object.Status.MovingTo != "" || !object.DeletionTimestamp.IsZero() || object.Spec.Store.InServer() {
		return "", 0, nil
	}
	return claimedBy(object), ptr.Deref(object.Status.Moves, 0), nil
}

// take makes a restore of a space the only one in this process until end is called. A restore in the process of a
// dedicated space doesn't exclude others, because a tenant may have taken over that process. take doesn't wait: waiting
// could not be canceled.
func (s *snapshots) take(space string) (end func(), err error) {
	if s.elsewhere(space) != nil {
		if end, err = s.transfers.Begin(space); err != nil {
			err = fmt.Errorf("%w; try again when one of them is done", err)
		}
		return end, err
	}
	if !s.restoring.TryLock() {
		return nil, errors.New("another restore is in progress; try again when it has finished")
	}
	return s.restoring.Unlock, nil
}

// replace stops a space in any state, and restores it from the snapshot.
func (s *snapshots) replace(ctx context.Context, bucket *snapshot.Bucket, id snapshot.ID) error {
	if process := s.elsewhere(id.Space); process != nil {
		if err := s.checkMoved(id.Space); err != nil {
			return err
		}
		// The process itself restores it, so that no store that it wrote is opened here.
		return snapshot.Fetch(ctx, bucket, id, datadir.Scratch(s.dataDir), func(store, rows, _ string) error {
			if s.replicator != nil {
				s.replicator.Restored(id.Space)
			}
			if rows != "" {
				return process.PutReplica(ctx, store, rows)
			}
			return process.PutStore(ctx, store, true)
		})
	}
	if err := s.checkNotInPod(id, id.Space); err != nil {
		return err
	}
	_, had := s.shard.Status(id.Space)
	err := s.stop(ctx, id.Space)
	if err == nil {
		err = snapshot.Replace(ctx, bucket, id, datadir.Spaces(s.dataDir), datadir.Scratch(s.dataDir))
	}
	return s.settle(id.Space, had, err)
}

func (s *snapshots) clone(ctx context.Context, bucket *snapshot.Bucket, id snapshot.ID, as string, replace bool) (snapshot.Changes, error) {
	_, had := s.shard.Status(as)
	dir := datadir.Space(s.dataDir, as)
	if err := s.checkNotInPod(id, as); err != nil {
		return snapshot.Changes{}, err
	}
	if err := s.mayClone(id, as, had || s.elsewhere(as) != nil || snapshot.Exists(dir), replace); err != nil {
		return snapshot.Changes{}, err
	}
	changes, err := snapshot.Clone(ctx, bucket, id, as, datadir.Spaces(s.dataDir), datadir.Scratch(s.dataDir),
		func(ctx context.Context) error {
			// The space is stopped only when the snapshot has been checked, and before the services of the snapshot are
			// reserved, so that no syncer acts on them.
			if err := s.stop(ctx, as); err != nil {
				return err
			}
			return s.shard.Prepare(ctx, as)
		},
		func(ctx context.Context, vs []*corev1.Service) ([]*corev1.Service, error) {
			return s.shard.AdoptServices(ctx, as, vs)
		})
	if err = s.settle(as, had, err); err != nil && !had && !snapshot.Exists(dir) {
		_ = os.Remove(datadir.Kubeconfig(s.dataDir, as)) // its server no longer serves the space
	}
	return changes, err
}

// checkNotInPod fails if the store of a space is in its pod, but the space has no process that could replace it there.
func (s *snapshots) checkNotInPod(id snapshot.ID, space string) error {
	if s.elsewhere(space) != nil {
		return nil
	}
	where, err := readStoreLocation(datadir.Space(s.dataDir, space))
	if err == nil && where != nil {
		err = apierrors.NewConflict(v1alpha1.Resource("spaces"), space, fmt.Errorf("restore snapshot %s: %w", id, errInPod(space)))
	}
	return err
}

// checkMoved fails if a space must have a pod, but its store has not been moved there yet, because the move would
// overwrite a restore.
func (s *snapshots) checkMoved(space string) error {
	if !s.pods {
		return nil
	}
	dir := datadir.Space(s.dataDir, space)
	where, err := readStoreLocation(dir)
	if err == nil && where == nil && !servedByPod(dir) {
		err = apierrors.NewConflict(v1alpha1.Resource("spaces"), space, errors.New("the space is being moved to its pod; try again when it is Ready, or set spec.isolation to Shared first"))
	}
	return err
}

// mayClone returns an error if a snapshot can't be restored as the space as.
func (s *snapshots) mayClone(id snapshot.ID, as string, there, replace bool) error {
	var remedy string
	switch {
	case !there:
		return nil
	case s.elsewhere(as) != nil:
		remedy = "that space has a process of its own; choose another name, or set spec.isolation of its Space object to Shared, wait until it has moved, and use --replace"
	case as == id.Space:
		remedy = "that space is the source of the snapshot; restore it without --as"
	case !replace:
		remedy = "choose another name, or use --replace to replace that space, also on the host"
	default:
		return nil
	}
	return apierrors.NewBadRequest(fmt.Sprintf("restore snapshot %s as %s: a space of that name exists: %s", id, as, remedy))
}

// stop stops a space and removes its place. It does not stop when the caller's context ends, because a space that is
// still stopping can't get its place back. A space without a place may have stopped with an error, for example because
// its store is damaged. That does not matter, as it is about to be replaced; if its store were still open, the
// replacement would fail.
func (s *snapshots) stop(ctx context.Context, space string) error {
	err := s.shard.StopSpace(context.WithoutCancel(ctx), space)
	if _, has := s.shard.Status(space); has || err == nil {
		return err
	}
	s.logger.Error(err, "Could not stop in order a space that a restore replaces; the restore continues", "space", space)
	return nil
}

// settle gives a space its place, if it was restored, or if it had a place before it was stopped. In the latter case,
// it continues as before.
func (s *snapshots) settle(space string, had bool, err error) error {
	_, has := s.shard.Status(space)
	if has || err != nil && !had {
		return err
	}
	added := s.shard.Add(space)
	if err != nil {
		s.shard.WarmUp(space)
	}
	return errors.Join(err, added)
}

// RestoreStopped restores a space in a data directory that no platform uses, from the URL of a bucket. It returns the
// names of the space and of the snapshot. For trust, see [RestoreRequest].
func RestoreStopped(ctx context.Context, dataDir, name, from string, trust bool) (space, restored string, err error) {
	id, err := snapshot.ParseID(name)
	if err != nil {
		return "", "", err
	}
	bucket, err := snapshot.Open(from)
	if err != nil {
		return "", "", err
	}
	if trust {
		bucket = bucket.Trusted()
	}
	lock, err := datadir.Lock(dataDir)
	if err != nil {
		return "", "", err
	}
	defer lock.Close()
	if store, err := datadir.KnownStoreID(dataDir, id.Space); id.Latest && id.Store == "" && err == nil {
		id.Store = store // as for ofSpace
	}
	if id, err = bucket.Find(ctx, id); err != nil {
		return "", "", err
	}
	if where, err := readStoreLocation(datadir.Space(dataDir, id.Space)); err != nil || where != nil {
		return "", "", errors.Join(err, fmt.Errorf("restore snapshot %s: the store of space %s is in its pod; start berth, and restore the space while it runs", id, id.Space))
	}
	return id.Space, id.String(), snapshot.Replace(ctx, bucket, id, datadir.Spaces(dataDir), datadir.Scratch(dataDir))
}
