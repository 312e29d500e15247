// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/berth-dev/berth/platform/operations"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/isolation"
	"github.com/berth-dev/berth/platform/datadir"
	"github.com/berth-dev/berth/platform/spaceobjects"
	"github.com/berth-dev/berth/platform/volumelabels"
	"github.com/berth-dev/berth/snapshot"
	"github.com/berth-dev/berth/translate"
)

const (
	// settleTime is how long a change of a space's status waits for the next one, so that what takes less, such as most
	// wakes, is not written.
	settleTime = 300 * time.Millisecond
	// refreshInterval is how often the status of a space that runs is looked at, and processRefresh that of one with a process
	// of its own.
	refreshInterval, processRefresh = 15 * time.Second, 2 * time.Second
)

// labelRetry is when volumes are labeled again that could not be.
const labelRetry = time.Minute

// busyRetry is when a space is looked at again to which something else is done now, such as a restore.
const busyRetry = time.Second

// startReconciling reconciles spaces with their objects, which are watched since [Manager.Open], until the platform stops.
func (m *Manager) startReconciling(ctx context.Context) error {
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	stop := m.objects.Run(life, m.reconcile, func(name string, err error) {
		m.logger.Error(err, "Could not reconcile a space; Berth retries", "space", name)
	})
	m.undoStart.add(func(context.Context) { end(); stop() })
	m.serveDeletion()
	if err := os.MkdirAll(datadir.Deleted(m.config.DataDir, ""), 0o700); err != nil { // now, as a deletion may have to do with a full disk
		return fmt.Errorf("prepare for deletions: %w", err)
	}
	for _, dir := range []string{datadir.Spaces(m.config.DataDir), datadir.Deleted(m.config.DataDir, ""), datadir.Received(m.config.DataDir)} {
		entries, err := os.ReadDir(dir)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("list spaces: %w", err)
		}
		for _, entry := range entries { // also those without an object
			if entry.IsDir() && isolation.CheckSpaceName(entry.Name()) == nil {
				m.objects.Queue.Add(entry.Name())
			}
		}
	}
	return nil
}

// changed reconciles a space soon, because its status has changed. It does not block.
func (m *Manager) changed(space string) {
	m.objects.Queue.AddAfter(space, settleTime)
}

// quotaSettleTime is how long a change of what a space uses of its quota, or of its namespaces, waits for the next one, so that a
// tenant can't make the host store a status for each.
const quotaSettleTime = 5 * time.Second

// namespacesChanged reconciles a space soon, because it has more or fewer namespaces. It does not block.
func (m *Manager) namespacesChanged(space string) {
	m.objects.Queue.AddAfter(space, quotaSettleTime)
}

// quotaChanged reconciles a space soon, because the use of its quota has changed. It does not block.
func (m *Manager) quotaChanged(space string) {
	if m.applied.get(space) == nil {
		return // not one of this platform's
	}
	m.quotas.changed(space)
	m.objects.Queue.AddAfter(space, quotaSettleTime)
}

// volumeChanged reconciles a space soon, because one of its volumes may need labels. It does not block.
func (m *Manager) volumeChanged(space string) {
	if m.applied.get(space) != nil {
		m.objects.Queue.AddAfter(space, quotaSettleTime)
	}
}

// labelVolumes labels the volumes of a space on the host. A failure holds up nothing else. Without the right to label
// volumes, it stops until the next start.
func (m *Manager) labelVolumes(ctx context.Context, object *v1alpha1.Space) {
	if m.unlabeled.Load() {
		return
	}
	err := volumelabels.Apply(ctx, m.hostClient, m.shard.Host().Host, object.Name, object.Spec.TenantName)
	switch {
	case err == nil, ctx.Err() != nil:
	case apierrors.IsForbidden(err):
		m.unlabeled.Store(true)
		m.logger.Info("Volumes of the host are not labeled with their spaces and tenants; to have them labeled, grant patch on persistentvolumes, and start Berth again", "reason", err.Error())
	default:
		m.logger.Error(err, "Could not label the volumes of a space; Berth retries", "space", object.Name)
		m.objects.Queue.AddAfter(object.Name, labelRetry)
	}
}

// claimedBy returns the ID of the store of an object's space; "" if it has none yet.
func claimedBy(object *v1alpha1.Space) string { return object.Annotations[translate.AnnotationStore] }

// owns reports whether the object of a space is this platform's to serve: it is nobody's yet, or was created for the
// store in the data directory.
func (m *Manager) owns(object *v1alpha1.Space) bool {
	if m.isElsewhere(object) {
		return false
	}
	claimed := claimedBy(object)
	if claimed == "" {
		return true
	}
	store, err := datadir.KnownStoreID(m.config.DataDir, object.Name)
	return err == nil && store == claimed && m.isCurrent(object)
}

// reconcile brings a space to the state that its object asks for, and writes the status of the object. It may be called
// again at any moment, and continues where it, or an earlier process, stopped.
func (m *Manager) reconcile(ctx context.Context, name string) (again time.Duration, err error) {
	object := m.objects.Get(name)
	if object != nil && m.mayBeGone(object) {
		if is, err := m.isBehind(ctx, object); is || err != nil {
			return busyRetry, err
		}
	}
	if object != nil && !m.deletions.has(name) && m.mayTakeFiles(object) {
		err := m.takeFiles(ctx, object)
		switch {
		case errors.Is(err, errBusy):
			return busyRetry, nil
		case errors.Is(err, errStoreMissing):
			return refreshInterval, m.writeStatus(ctx, object, err)
		case err != nil:
			return 0, errors.Join(err, m.writeStatus(ctx, object, err))
		}
	}
	switch {
	case m.deletions.has(name):
		if object != nil && object.DeletionTimestamp.IsZero() {
			object = nil // the one that is being deleted was removed by force, and this one comes after it
		}
		return m.delete(ctx, name, object)
	case object == nil:
		return m.reconcileGone(ctx, name)
	case m.isElsewhere(object):
		return m.leftBehind(ctx, object)
	case m.hasArrived(object):
		return busyRetry, m.takeOver(ctx, name, false)
	case !m.owns(object) && m.config.Shard != "" && object.DeletionTimestamp.IsZero():
		return m.storeMissing(ctx, object)
	case !m.owns(object):
		m.foreign.once(object, func() {
			if !object.DeletionTimestamp.IsZero() {
				return // its store may have been this platform's, and is deleted already
			}
			m.logger.Error(spaceobjects.ErrForeign, "Ignored a Space object of another platform", "space", name)
		})
		return 0, nil
	case !object.DeletionTimestamp.IsZero():
		if !slices.Contains(object.Finalizers, v1alpha1.Finalizer) {
			return 0, nil // nothing of it is left here, or nothing ever was
		}
		return m.delete(ctx, name, object)
	case !slices.Contains(object.Finalizers, v1alpha1.Finalizer) || object.Annotations[translate.AnnotationStore] == "":
		return m.claim(ctx, object)
	}
	m.noteObject(object)
	m.labelVolumes(ctx, object)
	if m.config.Shard != "" && object.Status.MovingTo != "" {
		return busyRetry, m.moveIfPossible(ctx, object)
	}
	before := m.applied.get(name)
	spec, _ := m.specOf(object)
	if before != nil && before.Generation == object.Generation && before.runsLike(spec) && m.hasPlace(name) {
		if err := m.reopen(ctx, object); err != nil {
			return busyRetry, errors.Join(err, m.writeStatus(ctx, object, nil))
		}
		m.publishOwners(ctx, object)
		return m.refreshAfter(object), m.writeStatus(ctx, object, nil)
	}
	if want, _, _ := m.want(object); want != nil && want.Outgrown && before != nil && !before.Outgrown {
		m.recordMove(ctx, object)
	}
	end, err := m.changes.Begin(name, "being changed")
	if err != nil {
		return busyRetry, nil // something else is done to it now
	}
	if !m.hasPlace(name) { // a stop that took too long has taken it away
		m.applied.remove(name)
	}
	isNew, failure := m.run(ctx, object)
	switch {
	case isNew:
		m.start(name)
		if object.Spec.Store.InServer() && object.Status.State == v1alpha1.SpaceRunning && m.processes.get(name) == nil {
			m.shard.BeginWake(name) // on another shard, which is dead
		}
	case failure == nil:
		failure = m.change(ctx, object)
	}
	end()
	m.publishOwners(ctx, object)
	if errors.Is(failure, errGivenUp) { // the space is to stay where it is, or is being deleted
		return busyRetry, nil
	}
	if errors.Is(failure, errUnsent) { // its status says whether the process runs
		m.logger.V(1).Info("A change waits for a dedicated space's process; Berth retries", "space", name, "reason", failure.Error())
		return processRefresh, m.writeStatus(ctx, object, nil)
	}
	if errors.Is(failure, operations.ErrTransfers) { // changes without an event of the object
		return busyRetry, m.writeStatus(ctx, object, failure)
	}
	if invalid := (*invalidSpec)(nil); failure != nil && !errors.As(failure, &invalid) && !errors.Is(failure, errPaused) && !errors.Is(failure, errUntrusted) && !errors.Is(failure, errStaysDedicated) {
		err = failure // is tried again
	}
	return m.refreshAfter(object), errors.Join(err, m.writeStatus(ctx, object, failure))
}

// claim notes on a new object that this platform serves it.
func (m *Manager) claim(ctx context.Context, object *v1alpha1.Space) (again time.Duration, err error) {
	end, err := m.changes.Begin(object.Name, "being created")
	if err != nil {
		return busyRetry, nil
	}
	defer end()
	if store, err := datadir.KnownStoreID(m.config.DataDir, object.Name); err == nil && object.Annotations[translate.AnnotationStore] == "" && m.applied.get(object.Name) == nil {
		before, err := readApplied(datadir.Space(m.config.DataDir, object.Name))
		if err != nil {
			return 0, err
		}
		if before != nil {
			return refreshInterval, m.writeStatus(ctx, object, &orphanedStore{datadir.Space(m.config.DataDir, object.Name), store})
		}
	}
	if err := errors.Join(m.takeBack(object.Name), m.countMoves(ctx, object.Name)); err != nil {
		return 0, err
	}
	store, err := datadir.StoreID(m.config.DataDir, object.Name)
	if err != nil {
		return 0, err
	}
	return 0, m.objects.Claim(ctx, object, store) // which is seen next
}

// orphanedStore is of a new object of the name of a space whose object was removed by force, so that its store is still
// there. Whose it is to be is the admin's to say.
type orphanedStore struct{ dir, store string }

func (e *orphanedStore) Error() string {
	return fmt.Sprintf("the store of an earlier space of this name is still there, because its object was removed by force; to continue with that store, annotate this object with %s=%s, or to start with an empty one, move %s away",
		translate.AnnotationStore, e.store, e.dir)
}

// refreshAfter is when the status of a space is to be looked at again, if nothing tells that it has changed.
func (m *Manager) refreshAfter(object *v1alpha1.Space) time.Duration {
	name := object.Name
	next := m.nextShareReading(object)
	switch {
	case m.processes.get(name) != nil: // which tells nothing by itself
		return processRefresh
	case m.shard.Space(name) != nil && next > 0:
		return next
	case m.shard.Space(name) != nil:
		return refreshInterval
	default:
		return 0
	}
}

// reconcileGone is for a space without an object. Nothing is deleted on the word of what is not there: it may be the
// host, or the definition of spaces, that is another one. One that never had an object, as it was restored while no
// platform ran, gets one.
func (m *Manager) reconcileGone(ctx context.Context, name string) (again time.Duration, err error) {
	if listed, ok := m.unapplied.Load(name); ok {
		if err := m.Ensure(ctx, listed.(*v1alpha1.Space)); err != nil {
			return 0, err
		}
		m.unapplied.Delete(name)
		return 0, nil // which is seen next
	}
	dir := datadir.Space(m.config.DataDir, name)
	before, err := readApplied(dir)
	switch {
	case err != nil:
		return 0, err
	case before == nil && snapshot.Exists(dir):
		end, err := m.changes.Begin(name, "being created")
		if err != nil {
			return busyRetry, nil
		}
		defer end()
		return 0, m.ensureObject(ctx, name)
	}
	object := &v1alpha1.Space{}
	if err := m.objects.Client.Get(ctx, client.ObjectKey{Name: name}, object); client.IgnoreNotFound(err) != nil {
		return 0, fmt.Errorf("read Space object %s: %w", name, err)
	} else if err == nil && object.Spec.PlatformName == m.config.PlatformName {
		return busyRetry, nil // the watch is behind
	}
	m.moved.Delete(name)
	if again, err := m.dropReceived(name); again > 0 || err != nil {
		return again, err
	}
	if before == nil && m.applied.get(name) == nil {
		return 0, removeAll(datadir.Deleted(m.config.DataDir, name)) // a crash may have left it
	}
	if m.applied.get(name) != nil {
		end, err := m.changes.Begin(name, "being stopped")
		if err != nil {
			return busyRetry, nil
		}
		defer end()
		m.endPod(ctx, name)
		if err := m.stop(ctx, name); err != nil {
			return 0, err
		}
		m.forget(name)
	}
	m.logger.Error(errors.New("the space has no Space object for this platform"), "Stopped serving a space. Its store and its host objects stay. Create its object again to serve or to delete the space", "space", name, "dir", dir)
	return 0, nil
}

// forget forgets a space that has no place.
func (m *Manager) forget(name string) {
	m.applied.remove(name)
	m.disown(name)
	m.config.Specs.Remove(name)
	m.publications.Forget(name)
	m.crdShares.Forget(name)
	m.syncs.Forget(name)
	m.accountRights.forget(name)
	m.quotas.forget(name)
	m.shares.Forget(name)
	m.withinShare.Delete(name)
	m.failedMoves.Forget(name)
	if m.replicator != nil {
		m.replicator.Forget(name)
	}
	m.owners.Forget(name)
	if m.access != nil {
		m.access.Forget(name)
	}
	if m.pods != nil {
		m.pods.at.Delete(name)
		m.pods.servers.Delete(name)
	}
}

// seenObjects are objects that something was logged of. The zero value is ready to use. It is safe for concurrent use.
type seenObjects struct{ of sync.Map }

// once calls f, unless it was called for the object before.
func (s *seenObjects) once(object *v1alpha1.Space, f func()) {
	if last, _ := s.of.Swap(object.Name, object.UID); last != object.UID {
		f()
	}
}

// checkOwn fails if there is an object of the name that this platform doesn't serve.
func (m *Manager) checkOwn(ctx context.Context, space string) error {
	object := &v1alpha1.Space{}
	err := m.objects.Client.Get(ctx, client.ObjectKey{Name: space}, object)
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("read Space object %s: %w", space, err)
	case object.Spec.PlatformName != m.config.PlatformName:
		return fmt.Errorf("%w: the Space object of that name is of the platform %s; name the space differently", isolation.ErrTaken, object.Spec.PlatformName)
	case !m.owns(object):
		return spaceobjects.ErrForeign
	default:
		return nil
	}
}

// invalidSpec is the error of a spec with invalid fields.
type invalidSpec struct{ field.ErrorList }

func (e *invalidSpec) Error() string { return e.ToAggregate().Error() }
