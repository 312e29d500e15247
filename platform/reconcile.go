// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package platform

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/isolation"
	"github.com/berth-dev/berth/snapshot"
	"github.com/berth-dev/berth/translate"
)

// busyRetry is when a space is looked at again to which something else is done now, such as a restore.
const busyRetry = time.Second

// startReconciling watches the Space objects, and reconciles spaces with them until the platform stops.
func (p *Platform) startReconciling(ctx context.Context) error {
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	stop := p.objects.run(life, p.reconcile, func(name string, err error) {
		p.logger.Error(err, "Could not reconcile a space; it is tried again", "space", name)
	})
	p.onStop(func(context.Context) { end(); stop() })
	p.serveDeletion()
	if err := os.MkdirAll(deletedDir(p.config.DataDir, ""), 0o700); err != nil { // now, as a deletion may have to do with a full disk
		return fmt.Errorf("prepare for deletions: %w", err)
	}
	for _, dir := range []string{spacesDir(p.config.DataDir), deletedDir(p.config.DataDir, "")} {
		entries, err := os.ReadDir(dir)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("list spaces: %w", err)
		}
		for _, entry := range entries { // also those without an object
			if entry.IsDir() && isolation.CheckSpaceName(entry.Name()) == nil {
				p.objects.queue.Add(entry.Name())
			}
		}
	}
	return nil
}

// changed reconciles a space soon, because its status has changed. It does not block.
func (p *Platform) changed(space string) {
	p.objects.queue.AddAfter(space, settleTime)
}

// quotaSettleTime is how long a change of what a space uses of its quota waits for the next one.
const quotaSettleTime = 5 * time.Second

// quotaChanged reconciles a space soon, because the use of its quota has changed. It does not block.
func (p *Platform) quotaChanged(space string) {
	if p.applied.get(space) == nil {
		return // not one of this platform's
	}
	p.quotas.Store(space, struct{}{})
	p.objects.queue.AddAfter(space, quotaSettleTime)
}

// owns reports whether the object of a space is this platform's to serve: it is nobody's yet, or was created for the store in
// the data directory.
func (p *Platform) owns(object *v1alpha1.Space) bool {
	claimed := object.Annotations[translate.AnnotationStore]
	if claimed == "" {
		return true
	}
	store, err := p.knownStoreID(object.Name)
	return err == nil && store == claimed
}

// reconcile brings a space to the state that its object asks for, and writes the status of the object. It may be called again at
// any moment, and continues where it, or an earlier process, stopped.
func (p *Platform) reconcile(ctx context.Context, name string) (again time.Duration, err error) {
	object := p.objects.get(name)
	switch {
	case p.deletions.has(name):
		if object != nil && object.DeletionTimestamp.IsZero() {
			object = nil // the one that is being deleted was removed by force, and this one comes after it
		}
		return p.delete(ctx, name, object)
	case object == nil:
		return p.reconcileGone(ctx, name)
	case !p.owns(object):
		p.foreign.once(object, func() {
			p.logger.Error(errForeign, "Ignored a Space object", "space", name)
		})
		return 0, nil
	case !object.DeletionTimestamp.IsZero():
		if !slices.Contains(object.Finalizers, v1alpha1.Finalizer) {
			return 0, nil // nothing of it is left here, or nothing ever was
		}
		return p.delete(ctx, name, object)
	case !slices.Contains(object.Finalizers, v1alpha1.Finalizer) || object.Annotations[translate.AnnotationStore] == "":
		return p.claim(ctx, object)
	}
	before := p.applied.get(name)
	if before != nil && before.Generation == object.Generation && before.runsLike(&object.Spec) {
		return p.refreshAfter(name), p.writeStatus(ctx, object, nil)
	}
	end, err := p.changes.begin(name, "being changed")
	if err != nil {
		return busyRetry, nil // something else is done to it now
	}
	isNew, failure := p.run(object)
	switch {
	case isNew:
		p.start(name)
	case failure == nil:
		failure = p.change(ctx, object)
	}
	end()
	if invalid := (*invalidSpec)(nil); failure != nil && !errors.As(failure, &invalid) && !errors.Is(failure, errPaused) {
		err = failure // is tried again
	}
	return p.refreshAfter(name), errors.Join(err, p.writeStatus(ctx, object, failure))
}

// claim notes on a new object that this platform serves it.
func (p *Platform) claim(ctx context.Context, object *v1alpha1.Space) (again time.Duration, err error) {
	end, err := p.changes.begin(object.Name, "being created")
	if err != nil {
		return busyRetry, nil
	}
	defer end()
	if store, err := p.knownStoreID(object.Name); err == nil && object.Annotations[translate.AnnotationStore] == "" && p.applied.get(object.Name) == nil {
		before, err := readApplied(p.spaceDir(object.Name))
		if err != nil {
			return 0, err
		}
		if before != nil {
			return refreshInterval, p.writeStatus(ctx, object, &orphanedStore{p.spaceDir(object.Name), store})
		}
	}
	if err := takeBack(p.config.DataDir, object.Name); err != nil {
		return 0, err
	}
	store, err := p.storeID(object.Name)
	if err != nil {
		return 0, err
	}
	return 0, p.objects.claim(ctx, object, store) // which is seen next
}

// orphanedStore is of a new object of the name of a space whose object was removed by force, so that its store is still there.
// Whose it is to be is the admin's to say.
type orphanedStore struct{ dir, store string }

func (e *orphanedStore) Error() string {
	return fmt.Sprintf("the store of an earlier space of this name is still there, because its object was removed by force; to continue with that store, annotate this object with %s=%s, or to start with an empty one, move %s away",
		translate.AnnotationStore, e.store, e.dir)
}

// refreshAfter is when the status of a space is to be looked at again, if nothing tells that it has changed.
func (p *Platform) refreshAfter(name string) time.Duration {
	switch {
	case p.processes.get(name) != nil: // which tells nothing by itself
		return processRefresh
	case p.shard.Space(name) != nil:
		return refreshInterval
	default:
		return 0
	}
}

// reconcileGone is for a space without an object. Nothing is deleted on the word of what is not there: it may be the host, or the
// definition of spaces, that is another one. One that never had an object, as it was restored while no platform ran, gets one.
func (p *Platform) reconcileGone(ctx context.Context, name string) (again time.Duration, err error) {
	if listed, ok := p.unapplied.Load(name); ok {
		if err := p.applyListed(ctx, listed.(*v1alpha1.Space)); err != nil {
			return 0, err
		}
		p.unapplied.Delete(name)
		return 0, nil // which is seen next
	}
	dir := p.spaceDir(name)
	before, err := readApplied(dir)
	switch {
	case err != nil:
		return 0, err
	case before == nil && snapshot.Exists(dir):
		end, err := p.changes.begin(name, "being created")
		if err != nil {
			return busyRetry, nil
		}
		defer end()
		return 0, p.ensure(ctx, name)
	}
	object := &v1alpha1.Space{}
	if err := p.objects.client.Get(ctx, client.ObjectKey{Name: name}, object); client.IgnoreNotFound(err) != nil {
		return 0, fmt.Errorf("read Space object %s: %w", name, err)
	} else if err == nil && object.Spec.PlatformName == p.config.PlatformName {
		return busyRetry, nil // the watch is behind
	}
	if before == nil && p.applied.get(name) == nil {
		return 0, removeAll(deletedDir(p.config.DataDir, name)) // a crash may have left it
	}
	if p.applied.get(name) != nil {
		end, err := p.changes.begin(name, "being stopped")
		if err != nil {
			return busyRetry, nil
		}
		defer end()
		if err := p.stop(ctx, name); err != nil {
			return 0, err
		}
		p.forget(name)
	}
	p.logger.Error(errors.New("it has no Space object for this platform"), "Stopped serving a space. Its store and its host objects stay. Create its object again to serve or to delete the space", "space", name, "directory", dir)
	return 0, nil
}

// forget forgets a space that has no place.
func (p *Platform) forget(name string) {
	p.applied.remove(name)
	p.config.specs.remove(name)
	p.quotas.Delete(name)
}

// seenObjects are objects that something was logged of. The zero value is ready to use. It is safe for concurrent use.
type seenObjects struct{ of sync.Map }

// once calls f, unless it was called for the object before.
func (s *seenObjects) once(object *v1alpha1.Space, f func()) {
	if last, _ := s.of.Swap(object.Name, object.UID); last != object.UID {
		f()
	}
}
