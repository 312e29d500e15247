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
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

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
	starts := firstStarts{}
	for i, space := range p.config.Spaces {
		if listed[i] != nil {
			starts.failures = append(starts.failures, spaceFailure{space.Name, listed[i]})
		}
	}
	for i := range all {
		object := &all[i]
		if !p.owns(object) || !object.DeletionTimestamp.IsZero() {
			continue
		}
		isNew, err := p.run(object)
		isListed := slices.ContainsFunc(p.config.Spaces, func(s v1alpha1.Space) bool { return s.Name == object.Name })
		switch {
		case err != nil && isListed:
			starts.failures = append(starts.failures, spaceFailure{object.Name, err})
		case err != nil:
			p.logger.Error(err, "Space is not served as its object says; it is tried again", "space", object.Name)
		}
		switch {
		case isNew && isListed:
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

// startReconciling keeps spaces as their objects say, and the objects' statuses as the spaces are.
func (p *Platform) startReconciling(ctx context.Context) error {
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	stop := p.objects.run(life, p.reconcile, func(name string, err error) {
		p.logger.Error(err, "Space is not as its object says; it is tried again", "space", name)
	})
	p.onStop(func(context.Context) { end(); stop() })
	p.serveDeletion()
	entries, err := os.ReadDir(spacesDir(p.config.DataDir))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("list spaces: %w", err)
	}
	for _, entry := range entries { // also those without an object
		if entry.IsDir() && isolation.CheckSpaceName(entry.Name()) == nil {
			p.objects.queue.Add(entry.Name())
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
	case object == nil:
		return p.reconcileGone(ctx, name)
	case !p.owns(object):
		return 0, nil
	case !object.DeletionTimestamp.IsZero():
		return p.delete(ctx, name, object)
	case !slices.Contains(object.Finalizers, v1alpha1.Finalizer) || object.Annotations[translate.AnnotationStore] == "":
		if err := takeBack(p.config.DataDir, name); err != nil {
			return 0, err
		}
		store, err := p.storeID(name)
		if err != nil {
			return 0, err
		}
		return 0, p.objects.claim(ctx, object, store) // which is seen next
	}
	end, err := p.changes.begin(name, "being changed")
	if err != nil {
		return busyRetry, p.writeStatus(ctx, object, nil)
	}
	defer end()
	isNew, failure := p.run(object)
	switch {
	case isNew:
		p.start(name)
	case failure == nil:
		failure = p.change(ctx, object)
	}
	if invalid := (*invalidSpec)(nil); failure != nil && !errors.As(failure, &invalid) && !errors.Is(failure, errPaused) {
		err = failure // is tried again
	}
	return p.refreshAfter(name), errors.Join(err, p.writeStatus(ctx, object, failure))
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
	if before, readErr := readApplied(p.spaceDir(name)); readErr != nil || before == nil || !equality.Semantic.DeepEqual(before, want) {
		if err := want.write(p.spaceDir(name)); err != nil {
			return false, err
		}
	}
	p.config.specs.set(name, settings)
	if want.Spec.Isolation == v1alpha1.Dedicated {
		p.processes.add(name, p.newProcess(name, want.Spec))
	} else if err := p.shard.Add(name); err != nil && !errors.Is(err, shard.ErrTaken) { // it was restored
		return false, err
	}
	p.applied.set(name, want)
	return true, err
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
	if process := p.processes.get(name); process != nil {
		process.Stop(ctx)
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

// reconcileGone is for a space without an object. One that never had an object, as it was restored while no platform ran, gets
// one. One whose object is gone, though nothing was deleted, was given up by an admin who removed the finalizer: it is
// deleted from the host, and its data is retained.
func (p *Platform) reconcileGone(ctx context.Context, name string) (again time.Duration, err error) {
	dir := p.spaceDir(name)
	if p.applied.get(name) == nil {
		before, err := readApplied(dir)
		if err != nil {
			return 0, err
		}
		if before == nil && !p.deletions.has(name) {
			if !snapshot.Exists(dir) {
				return 0, nil // there is no such space, or somebody makes one
			}
			end, err := p.changes.begin(name, "being changed")
			if err != nil {
				return busyRetry, nil
			}
			defer end()
			return 0, p.ensure(ctx, name)
		}
	}
	return p.delete(ctx, name, nil)
}
