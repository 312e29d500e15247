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

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/internal/safego"
	"github.com/berth-dev/berth/isolation"
	"github.com/berth-dev/berth/shard"
	"github.com/berth-dev/berth/snapshot"
	"github.com/berth-dev/berth/translate"
)

// busyRetry is when a space is looked at again to which something else is done now, such as a restore.
const busyRetry = time.Second

// openSpaces has the host hold what the configuration says of spaces, and gives all spaces that have an object their places,
// asleep. So none is missed once requests are served.
func (p *Platform) openSpaces(ctx context.Context) error {
	p.onStop(p.stopDedicated)
	if p.config.SpaceRole == "" { // otherwise, the chart that installed the role installs the definitions, too
		if err := p.objects.define(ctx); err != nil {
			return err
		}
	}
	listed := make([]error, len(p.config.Spaces))
	var applying sync.WaitGroup
	slots := make(chan struct{}, reconcilers)
	for i := range p.config.Spaces {
		slots <- struct{}{}
		safego.Go(&applying, "apply a Space object", func() {
			defer func() { <-slots }()
			listed[i] = p.applyListed(ctx, &p.config.Spaces[i])
		}, func(err error) { listed[i] = err })
	}
	applying.Wait()
	all, err := p.objects.list(ctx)
	if err != nil {
		return err
	}
	starts, isListed := firstStarts{}, map[string]bool{}
	for i := range p.config.Spaces {
		space := &p.config.Spaces[i]
		isListed[space.Name] = true
		if listed[i] != nil {
			starts.failures = append(starts.failures, spaceFailure{space.Name, listed[i]})
			p.unapplied.Store(space.Name, space)
			p.objects.queue.AddRateLimited(space.Name)
		}
	}
	for i := range all {
		object := &all[i]
		if object.Annotations[translate.AnnotationStore] == "" || !p.owns(object) || !object.DeletionTimestamp.IsZero() {
			continue // reconcile sees to it
		}
		isNew, err := p.run(object)
		switch {
		case err != nil && isListed[object.Name]:
			starts.failures = append(starts.failures, spaceFailure{object.Name, err})
		case err != nil:
			p.logger.Error(err, "Could not apply the spec of a space", "space", object.Name)
		}
		switch {
		case isNew && isListed[object.Name]:
			starts.listed = append(starts.listed, object.Name)
		case isNew:
			starts.others = append(starts.others, object.Name)
		}
	}
	p.starts = starts
	return nil
}

// applyListed has the host hold the object of a space that the configuration names.
func (p *Platform) applyListed(ctx context.Context, space *v1alpha1.Space) error {
	if err := takeBack(p.config.DataDir, space.Name); err != nil {
		return err
	}
	store, err := p.storeID(space.Name)
	if err == nil {
		err = p.objects.apply(ctx, space, store)
	}
	return err
}

// ensure creates the object of a space that is on disk, unless it is there.
func (p *Platform) ensure(ctx context.Context, space string) error {
	store, err := p.storeID(space)
	if err == nil {
		err = p.objects.ensure(ctx, space, store)
	}
	return err
}

// checkOwn fails if there is an object of the name that this platform doesn't serve.
func (p *Platform) checkOwn(ctx context.Context, space string) error {
	object := &v1alpha1.Space{}
	err := p.objects.client.Get(ctx, client.ObjectKey{Name: space}, object)
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("read Space object %s: %w", space, err)
	case object.Spec.PlatformName != p.config.PlatformName:
		return fmt.Errorf("%w: the Space object of that name is of the platform %s; name the space differently", isolation.ErrTaken, object.Spec.PlatformName)
	case !p.owns(object):
		return errForeign
	default:
		return nil
	}
}

// startReconciling keeps spaces as their objects say, and the objects' statuses as the spaces are.
func (p *Platform) startReconciling(ctx context.Context) error {
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	stop := p.objects.run(life, p.reconcile, func(name string, err error) {
		p.logger.Error(err, "Space is not as its object says; it is tried again", "space", name)
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

// changed has the status of a space looked at soon. It does not block.
func (p *Platform) changed(space string) {
	p.objects.queue.AddAfter(space, settleTime)
}

// quotaSettleTime is how long a change of what a space uses of its quota waits for the next one.
const quotaSettleTime = 5 * time.Second

// quotaChanged has what a space uses of its quota looked at soon. It does not block.
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

// reconcile has a space be as its object says, and the object's status as the space is. It may be called again at any moment,
// and goes on where it, or an earlier run, left off.
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
			p.logger.Error(errForeign, "A Space object is not served", "space", name)
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
	return fmt.Sprintf("there is the store of an earlier space of this name, whose object was removed by force; to go on with it, annotate this object with %s=%s, or else move %s away",
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

// invalidSpec is of a spec in which something means nothing.
type invalidSpec struct{ field.ErrorList }

func (e *invalidSpec) Error() string { return e.ToAggregate().Error() }

// errPaused is of a space that is new, and paused.
var errPaused = errors.New("the space is paused before it was ever started; set spec.paused to false to have it started")

// want returns the spec that a space is to run with: that of its object, or if the object is paused or its spec means nothing,
// the one before.
func (p *Platform) want(object *v1alpha1.Space) (*applied, *spaceSettings, error) {
	settings, errs := p.config.specs.read(&object.Spec, field.NewPath("spec"))
	if err := isolation.CheckSpaceName(object.Name); err != nil { // the definition refuses it; names are paths here
		errs = append(errs, field.Invalid(field.NewPath("metadata", "name"), object.Name, err.Error()))
	}
	paused := ptr.Deref(object.Spec.Paused, false)
	if len(errs) == 0 && !paused {
		return &applied{Generation: object.Generation, Spec: *object.Spec.DeepCopy()}, settings, nil
	}
	failure := errPaused
	if len(errs) > 0 {
		failure = &invalidSpec{errs}
	}
	before := p.applied.get(object.Name)
	if before == nil {
		var err error
		if before, err = readApplied(p.spaceDir(object.Name)); err != nil {
			return nil, nil, errors.Join(failure, err)
		}
	}
	if before == nil {
		return nil, nil, failure
	}
	settings, more := p.config.specs.read(&before.Spec, field.NewPath("spec"))
	if len(more) > 0 {
		return nil, nil, &invalidSpec{append(errs, more...)}
	}
	if len(errs) > 0 {
		return before, settings, failure
	}
	return before, settings, nil
}

// run gives a space that has none its place, asleep. It changes nothing on the host.
func (p *Platform) run(object *v1alpha1.Space) (isNew bool, err error) {
	name := object.Name
	if p.applied.get(name) != nil {
		return false, nil
	}
	want, settings, err := p.want(object)
	if want == nil {
		return false, err
	}
	if err := errors.Join(takeBack(p.config.DataDir, name), os.MkdirAll(p.spaceDir(name), 0o700)); err != nil {
		return false, err
	}
	if before, readErr := readApplied(p.spaceDir(name)); readErr != nil || before == nil || before.Generation != want.Generation || !equality.Semantic.DeepEqual(before.Spec, want.Spec) {
		if err := want.write(p.spaceDir(name)); err != nil {
			return false, err
		}
	}
	p.config.specs.set(name, settings)
	if want.Spec.Isolation == v1alpha1.Dedicated {
		if !p.processes.add(name, p.newProcess(name, want.Spec), p.config.DedicatedMax) {
			return false, p.tooManyDedicated()
		}
	} else if err := p.shard.Add(name); err != nil && !errors.Is(err, shard.ErrTaken) { // it was restored
		return false, err
	}
	p.applied.set(name, want)
	return true, err
}

func (p *Platform) tooManyDedicated() error {
	return fmt.Errorf("spec.isolation: there are %d dedicated spaces, and --dedicated-max allows no more; raise it, or have this one or another be Shared", p.config.DedicatedMax)
}

// start has a space that has a place run, without waiting: one that never ran because its user waits for it, another once,
// so that what was due in it, or happened to its host objects, while no berth ran is taken up.
func (p *Platform) start(name string) {
	switch process := p.processes.get(name); {
	case process != nil:
		process.Start()
	case snapshot.Exists(p.spaceDir(name)):
		p.shard.WarmUp(name)
	default:
		p.shard.BeginWake(name)
	}
}

// change has a space that has a place run with another spec.
func (p *Platform) change(ctx context.Context, object *v1alpha1.Space) error {
	name := object.Name
	before := p.applied.get(name)
	want, settings, failure := p.want(object)
	if want == nil || want == before {
		return failure
	}
	if before.runsLike(&want.Spec) {
		if before.Generation != want.Generation {
			if err := want.write(p.spaceDir(name)); err != nil {
				return err
			}
			p.applied.set(name, want)
		}
		return failure
	}
	p.config.specs.set(name, settings)
	if err := p.rerun(ctx, object, want); err != nil {
		if before := p.applied.get(name); before != nil {
			p.applied.set(name, &applied{Generation: before.Generation, Spec: before.Spec, partly: true})
		}
		return fmt.Errorf("change space %s: %w", name, err)
	}
	p.logger.Info("Space runs with another spec", "space", name, "generation", want.Generation)
	return failure
}

// rerun has a space run with what its specs say now. What it runs on the host runs on.
func (p *Platform) rerun(ctx context.Context, object *v1alpha1.Space, want *applied) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	name := object.Name
	if want.Spec.Isolation == v1alpha1.Dedicated && p.processes.get(name) == nil && len(p.processes.all()) >= p.config.DedicatedMax {
		return p.tooManyDedicated() // it goes on as it is
	}
	if err := p.prepare(ctx, name); err != nil {
		return err
	}
	if p.processes.get(name) == nil && want.Spec.Isolation != v1alpha1.Dedicated {
		err := want.write(p.spaceDir(name))
		if err == nil && !p.applied.get(name).runsInPlace(&want.Spec) {
			err = p.shard.Restart(ctx, name)
		}
		if err == nil {
			p.applied.set(name, want)
		}
		return err
	}
	if err := p.stop(ctx, name); err != nil {
		return err
	}
	p.applied.remove(name)
	if _, err := p.run(object); p.applied.get(name) == nil {
		return err
	}
	p.start(name)
	return nil
}

// stop stops a space wherever it runs, and takes its place away.
func (p *Platform) stop(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if process := p.processes.get(name); process != nil {
		if err := process.Stop(ctx); err != nil {
			return err
		}
		p.processes.remove(name)
	}
	if err := p.shard.StopSpace(ctx, name); err != nil {
		if _, has := p.shard.Status(name); has {
			return err
		}
		p.logger.Error(err, "Space did not stop in order", "space", name)
	}
	return nil
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
	p.logger.Error(errors.New("it has no Space object for this platform"), "A space is not served; its store and its host objects stay. Create its object again to have it served, or to delete it in order", "space", name, "directory", dir)
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
