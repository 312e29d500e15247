// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/isolation"
	"github.com/berth-dev/berth/platform/datadir"
	"github.com/berth-dev/berth/platform/specs"
	"github.com/berth-dev/berth/shard"
	"github.com/berth-dev/berth/snapshot"
	"github.com/berth-dev/berth/translate"
)

// appliedFile is in the directory of a space, and holds the spec that the space runs with.
const appliedFile = "applied.json"

// applied is the spec that a space runs with. While the object of the space is paused or invalid, it differs from that
// of the object.
type applied struct {
	Generation int64              `json:"generation"`
	Spec       v1alpha1.SpaceSpec `json:"spec"`
	// Outgrown says that the spec is Dedicated because the space has outgrown its share, and that of the object is not.
	Outgrown bool `json:"outgrown,omitempty"`

	// partly says that a change to another spec failed half way, so that the space may run with parts of it.
	partly bool
}

// readApplied reads what a space of an earlier run ran with; nil if nothing is known.
func readApplied(dir string) (*applied, error) {
	a, err := datadir.ReadJSON[applied](filepath.Join(dir, appliedFile))
	if err != nil {
		return nil, fmt.Errorf("read the spec that a space runs with: %w", err)
	}
	return a, nil
}

func (a *applied) write(dir string) error {
	if err := datadir.WriteJSON(filepath.Join(dir, appliedFile), a); err != nil {
		return fmt.Errorf("write the spec that a space runs with: %w", err)
	}
	return nil
}

// runsLike reports whether two specs make no difference to a space that runs.
func (a *applied) runsLike(spec *v1alpha1.SpaceSpec) bool {
	return !a.partly && equality.Semantic.DeepEqual(ofRunning(a.Spec), ofRunning(*spec))
}

// isEnforcedAs reports whether two specs differ at most in what the space follows while it runs, see [specs.WithoutEnforced], so that
// neither its objects on the host nor what it runs on are affected.
func (a *applied) isEnforcedAs(want *applied) bool {
	return !a.partly && a.Outgrown == want.Outgrown && a.Spec.TenantName == want.Spec.TenantName && // whose quota it is in
		equality.Semantic.DeepEqual(ofRunning(specs.WithoutEnforced(a.Spec)), ofRunning(specs.WithoutEnforced(want.Spec)))
}

// runsInPlace reports whether two specs make no difference to what runs of a space, but at most to its objects on the
// host, and to what is asked about while it runs.
func (a *applied) runsInPlace(spec *v1alpha1.SpaceSpec) bool {
	if a.partly || a.Spec.Isolation == v1alpha1.Dedicated || a.Spec.TenantName != spec.TenantName { // its process is told when it starts
		return false
	}
	return equality.Semantic.DeepEqual(ofProcess(a.Spec), ofProcess(*spec))
}

func ofProcess(spec v1alpha1.SpaceSpec) v1alpha1.SpaceSpec {
	spec = ofRunning(specs.WithoutEnforced(spec))
	spec.Quota, spec.ScopedQuotas = translate.CountedNames(spec.Quota), nil
	spec.HostNamespace, spec.Sleep, spec.Snapshots = v1alpha1.HostNamespace{}, v1alpha1.Sleep{}, v1alpha1.Snapshots{}
	return spec
}

// ofRunning is what matters to a space that runs.
func ofRunning(spec v1alpha1.SpaceSpec) v1alpha1.SpaceSpec {
	spec.Paused, spec.DeletionPolicy, spec.PlatformName, spec.DedicateAfterSeconds = nil, "", "", nil
	if spec.Isolation == "" {
		spec.Isolation = v1alpha1.Shared
	}
	return spec
}

// appliedSpecs are those of all spaces that have a place. The zero value is ready to use. It is safe for concurrent use.
type appliedSpecs struct {
	mu sync.Mutex
	of map[string]*applied
}

// get returns what a space runs with, which must not be changed; nil if it has no place.
func (s *appliedSpecs) get(space string) *applied {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.of[space]
}

func (s *appliedSpecs) set(space string, a *applied) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.of == nil {
		s.of = map[string]*applied{}
	}
	s.of[space] = a
}

func (s *appliedSpecs) remove(space string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.of, space)
}

// errPaused is the error of a new space that is paused.
var errPaused = errors.New("the space was paused before its first start; set spec.paused to false to start it")

// want returns the spec that a space is to run with: that of its object, or the one before if the object is paused or
// invalid. What the space enforces of its tenant is that of the object even then, if it is valid.
func (m *Manager) want(object *v1alpha1.Space) (*applied, *specs.Settings, error) {
	settings, errs := m.config.Specs.Read(&object.Spec, field.NewPath("spec"))
	if err := isolation.CheckSpaceName(object.Name); err != nil { // the definition refuses it; names are paths here
		errs = append(errs, field.Invalid(field.NewPath("metadata", "name"), object.Name, err.Error()))
	}
	paused := ptr.Deref(object.Spec.Paused, false)
	if len(errs) == 0 && !paused {
		spec, outgrown := m.specOf(object)
		return &applied{Generation: object.Generation, Spec: *spec.DeepCopy(), Outgrown: outgrown}, settings, nil
	}
	failure := errPaused
	if len(errs) > 0 {
		failure = &invalidSpec{errs}
	}
	before := m.applied.get(object.Name)
	if before == nil {
		var err error
		if before, err = readApplied(datadir.Space(m.config.DataDir, object.Name)); err != nil {
			return nil, nil, errors.Join(failure, err)
		}
	}
	if before == nil {
		return nil, nil, failure
	}
	// Rights are taken away, and tenants are cordoned, whatever else is wrong or has to wait.
	next := &applied{Generation: before.Generation, Spec: specs.WithEnforced(before.Spec, &object.Spec), Outgrown: before.Outgrown, partly: before.partly}
	if settings, more := m.config.Specs.Read(&next.Spec, field.NewPath("spec")); len(more) == 0 && !equality.Semantic.DeepEqual(next.Spec, before.Spec) {
		if len(errs) > 0 {
			return next, settings, failure
		}
		return next, settings, nil
	}
	settings, more := m.config.Specs.Read(&before.Spec, field.NewPath("spec"))
	if len(more) > 0 {
		return nil, nil, &invalidSpec{append(errs, more...)}
	}
	if len(errs) > 0 {
		return before, settings, failure
	}
	return before, settings, nil
}

// run gives a space that has none its place, asleep. It changes nothing on the host.
func (m *Manager) run(ctx context.Context, object *v1alpha1.Space) (isNew bool, err error) {
	name := object.Name
	if m.applied.get(name) != nil {
		return false, nil
	}
	if spec, _ := m.specOf(object); spec.Isolation != v1alpha1.Dedicated {
		if err := errors.Join(m.takeBack(name), m.admitReceived(ctx, object)); err != nil {
			return false, err
		}
	}
	if m.outgrew(object) { // how many such spaces there are must not change meanwhile
		m.places.Lock()
		defer m.places.Unlock()
	}
	return m.place(object)
}

// place does what run says.
func (m *Manager) place(object *v1alpha1.Space) (isNew bool, err error) {
	name := object.Name
	want, settings, err := m.want(object)
	if want == nil {
		return false, err
	}
	if want.Spec.Isolation != v1alpha1.Dedicated {
		// Its store may still be in its pod, or have come from one: then it runs there until the change takes it from there.
		where, readErr := m.storeLocation(name)
		if readErr != nil {
			return false, readErr
		}
		if where != nil || snapshot.IsReceived(datadir.Space(m.config.DataDir, name)) {
			if want, settings, err = m.beforeMove(name, err); want == nil {
				return false, err
			}
		}
	}
	if err := errors.Join(m.takeBack(name), os.MkdirAll(datadir.Space(m.config.DataDir, name), 0o700)); err != nil {
		return false, err
	}
	before, readErr := readApplied(datadir.Space(m.config.DataDir, name))
	if want.Spec.Isolation == v1alpha1.Dedicated && !m.processes.add(name, m.newProcess(name, want.Spec), m.dedicatedMax(name)) {
		if before == nil || before.Outgrown || before.Spec.Isolation == v1alpha1.Dedicated {
			return false, m.tooManyDedicated()
		}
		// Other spaces took the last places since this was decided. It has not moved yet, and continues as it was.
		err = m.tooManyDedicated()
		if want.Outgrown {
			want = &applied{Generation: want.Generation, Spec: *want.Spec.DeepCopy()}
			want.Spec.Isolation = v1alpha1.Shared
		} else {
			var errs field.ErrorList
			if settings, errs = m.config.Specs.Read(&before.Spec, field.NewPath("spec")); len(errs) > 0 {
				return false, &invalidSpec{errs}
			}
			want = before
		}
	}
	if readErr != nil || before == nil || before.Generation != want.Generation || before.Outgrown != want.Outgrown || !equality.Semantic.DeepEqual(before.Spec, want.Spec) {
		if err := want.write(datadir.Space(m.config.DataDir, name)); err != nil {
			return false, err
		}
	}
	m.config.Specs.Set(name, settings)
	if want.Spec.Isolation != v1alpha1.Dedicated {
		if err := m.shard.Add(name); err != nil && !errors.Is(err, shard.ErrTaken) { // it was restored
			return false, err
		}
	}
	m.own(name, want)
	return true, err
}

// beforeMove is the spec with which a space runs whose store is to be taken from its pod.
func (m *Manager) beforeMove(name string, failure error) (*applied, *specs.Settings, error) {
	before, err := readApplied(datadir.Space(m.config.DataDir, name))
	if err == nil && before == nil {
		err = fmt.Errorf("the file %s is missing, which says what the space ran with in its pod; restore it from a backup of the data directory", filepath.Join(datadir.Space(m.config.DataDir, name), appliedFile))
	}
	if err != nil {
		return nil, nil, errors.Join(failure, err)
	}
	before.Spec.Isolation = v1alpha1.Dedicated // also if a crash came between the two
	settings, errs := m.config.Specs.Read(&before.Spec, field.NewPath("spec"))
	if len(errs) > 0 {
		return nil, nil, &invalidSpec{errs}
	}
	return before, settings, failure
}

func (m *Manager) tooManyDedicated() error {
	return fmt.Errorf("spec.isolation: %d dedicated spaces exist, and --dedicated-max allows no more; raise it, or set this space or another one to Shared", m.config.DedicatedMax)
}

// start has a space that has a place run, without waiting: one that never ran because its user waits for it, another
// once, so that what was due in it, or happened to its host objects, while no berth ran is taken up.
func (m *Manager) start(name string) {
	switch process := m.processes.get(name); {
	case process != nil:
		process.Start()
	case snapshot.Exists(datadir.Space(m.config.DataDir, name)):
		m.shard.WarmUp(name)
	default:
		m.shard.BeginWake(name)
	}
}

// change has a space that has a place run with another spec.
func (m *Manager) change(ctx context.Context, object *v1alpha1.Space) error {
	name := object.Name
	before := m.applied.get(name)
	want, settings, failure := m.want(object)
	if want == nil || want == before {
		return failure
	}
	if before.runsLike(&want.Spec) {
		if before.Generation != want.Generation {
			if err := want.write(datadir.Space(m.config.DataDir, name)); err != nil {
				return err
			}
			m.applied.set(name, want)
		}
		return failure
	}
	if m.processes.get(name) != nil && want.Spec.Isolation != v1alpha1.Dedicated {
		end, err := m.beginToShare(object)
		if err != nil {
			if failure := m.changeDedicated(ctx, object, want); failure != nil {
				return failure
			}
			return fmt.Errorf("%w: %w", errStaysDedicated, err)
		}
		defer end()
	}
	if err := m.apply(ctx, object, want, settings); err != nil {
		return err
	}
	m.logger.Info("Applied the spec of a space", "space", name, "generation", want.Generation)
	return failure
}

// apply has a space run with a spec. If that fails, it may run with parts of it.
func (m *Manager) apply(ctx context.Context, object *v1alpha1.Space, want *applied, settings *specs.Settings) error {
	name := object.Name
	m.config.Specs.Set(name, settings)
	if m.applied.get(name).isEnforcedAs(want) {
		return m.enforce(ctx, name, want)
	}
	err := m.rerun(ctx, object, want)
	if err == nil {
		return nil
	}
	if before := m.applied.get(name); before != nil {
		m.applied.set(name, &applied{Generation: before.Generation, Spec: before.Spec, Outgrown: before.Outgrown, partly: true})
	}
	return fmt.Errorf("change space %s: %w", name, err)
}

// runAgain is run for a space that has been stopped.
func (m *Manager) runAgain(object *v1alpha1.Space) error {
	m.places.Lock()
	defer m.places.Unlock()
	m.applied.remove(object.Name)
	_, err := m.place(object)
	return err
}

// rerun has a space run with what its specs say now. What it runs on the host runs on.
func (m *Manager) rerun(ctx context.Context, object *v1alpha1.Space, want *applied) error {
	name := object.Name
	bound, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if want.Spec.Isolation == v1alpha1.Dedicated && m.processes.get(name) == nil && len(m.processes.all()) >= m.config.DedicatedMax {
		return m.tooManyDedicated() // it goes on as it is
	}
	if err := m.prepare(bound, name); err != nil {
		return err
	}
	if m.processes.get(name) == nil && want.Spec.Isolation != v1alpha1.Dedicated {
		err := want.write(datadir.Space(m.config.DataDir, name))
		if err == nil && !m.applied.get(name).runsInPlace(&want.Spec) {
			err = m.shard.Restart(bound, name)
		}
		if err != nil {
			return err
		}
		if before := &m.applied.get(name).Spec; !equality.Semantic.DeepEqual(before.Sync, want.Spec.Sync) || !equality.Semantic.DeepEqual(before.WorkloadIdentity, want.Spec.WorkloadIdentity) {
			m.shard.WarmUp(name) // one that sleeps, too, is to remove what it syncs no more
		}
		m.applied.set(name, want)
		return nil
	}
	if want.Spec.Isolation != v1alpha1.Dedicated {
		transfer, stop := m.whileWanted(ctx, name, m.stays)
		err := m.moveStoreFromPod(transfer, object, m.applied.get(name).Spec) // without a deadline: a store may be large
		if err != nil && errors.Is(context.Cause(transfer), errGivenUp) {
			err = errors.Join(err, errGivenUp)
		}
		stop()
		if err != nil {
			return err
		}
	}
	if err := m.stop(ctx, name); err != nil {
		return err
	}
	if err := m.runAgain(object); m.applied.get(name) == nil {
		return err
	}
	m.start(name)
	return nil
}

// stop stops a space wherever it runs, and takes its place away.
func (m *Manager) stop(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if process := m.processes.get(name); process != nil {
		if err := process.Stop(ctx); err != nil {
			return err
		}
		m.processes.remove(name)
	}
	if err := m.shard.StopSpace(ctx, name); err != nil {
		if _, has := m.shard.Status(name); has {
			return err
		}
		m.logger.Error(err, "Could not stop a space in order", "space", name)
	}
	return nil
}
