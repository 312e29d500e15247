// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/berth-dev/berth/internal/safego"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/internal/fsutil"
	"github.com/berth-dev/berth/kine"
	"github.com/berth-dev/berth/platform/datadir"
	"github.com/berth-dev/berth/platform/pod"
	"github.com/berth-dev/berth/shard/dedicated"
	"github.com/berth-dev/berth/snapshot"
)

// moveStoreToPod sends the store of a space to its pod, which must answer, and starts the space there. A crash at any
// point leaves one valid store: the platform's until storeLocationFile exists, and the pod's afterwards. The pod does
// not run the space before that.
func (m *Manager) moveStoreToPod(ctx context.Context, name string, p *dedicated.Process) error {
	if store := m.config.Specs.Of(name).Store; store.InServer() {
		return m.beginInPod(ctx, name, p)
	}
	where, err := m.storeLocation(name)
	if err != nil {
		return err
	}
	state, err := p.State(ctx)
	if err != nil {
		return err
	}
	dir := datadir.Space(m.config.DataDir, name)
	switch {
	case where == nil && state.Begun:
		return fmt.Errorf("the pod of space %s runs it, and there is a store of it in %s, too; if that is the one that counts, delete StatefulSet %s with its claim, else create the file %s with {}",
			name, dir, pod.Name(name), filepath.Join(dir, storeLocationFile))
	case where == nil:
		isNew := !snapshot.Exists(dir)
		if !isNew {
			if err := closeInOrder(ctx, name, dir); err != nil {
				return err
			}
			if err := p.PutStore(ctx, filepath.Join(dir, "store.db"), false); err != nil {
				return err
			}
		}
		if err := m.noteStoreInPod(name, storeLocation{New: isNew}); err != nil {
			return err
		}
	case !where.New && !state.HasStore:
		return fmt.Errorf("the pod of space %s has lost its store; restore the space from a snapshot: berth snapshot restore %[1]s", name)
	case where.New && state.HasStore:
		if err := m.noteStoreInPod(name, storeLocation{}); err != nil {
			return err
		}
	}
	if err := errors.Join(removeStore(dir), snapshot.UnmarkReceived(dir)); err != nil {
		return err
	}
	if err := m.sendIdentity(ctx, name, p); err != nil {
		return err
	}
	return p.Begin(ctx)
}

// fetchStore stops a space in its pod, and copies its store to the platform. spec is what the space runs with there. It
// has no deadline as long as the transfer makes progress.
func (m *Manager) fetchStore(ctx context.Context, name string, spec v1alpha1.SpaceSpec) error {
	where, err := m.storeLocation(name)
	if err != nil || where == nil {
		return err
	}
	if m.pods == nil {
		return errNoPods
	}
	p := m.newPod(name, spec)
	opening, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if err := m.openPod(opening, name, spec, p); err != nil {
		return err
	}
	return m.receiveStore(ctx, name, p, where.New)
}

// receiveStore is fetchStore for a pod that answers. A crash at any point leaves one valid store: the pod's until
// storeLocationFile is removed, and the platform's afterwards. Neither runs before that. isNew says that the space had
// no store when it began to run in its pod.
func (m *Manager) receiveStore(ctx context.Context, name string, p *dedicated.Process, isNew bool) error {
	if err := p.End(ctx); err != nil {
		return fmt.Errorf("stop space %s in its pod: %w", name, err)
	}
	state, err := p.State(ctx)
	if err != nil {
		return err
	}
	dir := datadir.Space(m.config.DataDir, name)
	switch {
	case state.HasStore:
		if err := m.receiveCopy(ctx, name, p); err != nil {
			return err
		}
	case !isNew:
		return fmt.Errorf("the pod of space %s has lost its store; restore the space from a snapshot: berth snapshot restore %[1]s", name)
	}
	if after, err := p.State(ctx); err != nil || after.Begun {
		return errors.Join(err, fmt.Errorf("space %s has begun to run in its pod again; the change is tried again", name))
	}
	if err := os.Remove(filepath.Join(dir, storeLocationFile)); err != nil {
		return fmt.Errorf("note where the store of space %s is: %w", name, err)
	}
	return fsutil.SyncDir(dir)
}

// receiveCopy makes a copy of a store, which its pod sends, the file of the space.
func (m *Manager) receiveCopy(ctx context.Context, name string, p *dedicated.Process) error {
	dir, scratch := datadir.Space(m.config.DataDir, name), datadir.Scratch(m.config.DataDir)
	received, err := os.MkdirTemp(scratch, "fetch-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(received)
	store := filepath.Join(received, "received.db")
	if err := p.CopyStore(ctx, store, m.admitCopy(name)); err != nil {
		return err
	}
	if !m.deletions.has(name) { // which doesn't open the store, and a damaged one is worth keeping, too
		if err := checkReceived(ctx, name, store, m.config.Specs.Limits(name)); err != nil {
			return err
		}
	}
	if err := snapshot.Place(store, dir, scratch); err != nil {
		return fmt.Errorf("take the store of space %s: %w", name, err)
	}
	return nil
}

// errStaysDedicated is of a space that is to be Shared, and runs on as it is for the reason that the error gives.
var errStaysDedicated = errors.New("the space stays dedicated")

// beginToShare fails if a dedicated space can't be moved to the shared process now. Otherwise, call end when it has been moved.
func (m *Manager) beginToShare(object *v1alpha1.Space) (end func(), err error) {
	if where, err := m.storeLocation(object.Name); err != nil || where != nil && m.pods == nil {
		return nil, errors.Join(err, errNoPods)
	}
	if m.pods == nil && !m.hasReceived(object.Name) {
		return func() {}, nil // its store stays where it is
	}
	if err := m.checkTrust(object); err != nil {
		return nil, err
	}
	if err := m.failedMoves.Check(object.Name, wishOf(object)); err != nil {
		return nil, err
	}
	return m.transfers.Begin(object.Name)
}

// checkTrust fails with errUntrusted if the store of a space is in its pod, or came from one, and the admin doesn't trust that.
func (m *Manager) checkTrust(object *v1alpha1.Space) error {
	where, err := m.storeLocation(object.Name)
	if err == nil && (where != nil || m.hasReceived(object.Name)) && !trusted(object) {
		err = errUntrusted
	}
	return err
}

// changeDedicated has a space that can't be moved to the shared process yet run with everything else that its new spec says.
func (m *Manager) changeDedicated(ctx context.Context, object *v1alpha1.Space, want *applied) error {
	name := object.Name
	before := m.applied.get(name)
	// Its generation is the one before until all of the new spec has taken effect.
	held := &applied{Generation: before.Generation, Spec: *want.Spec.DeepCopy(), Outgrown: before.Outgrown}
	held.Spec.Isolation = v1alpha1.Dedicated
	if before.runsLike(&held.Spec) {
		return nil
	}
	settings, errs := m.config.Specs.Read(&held.Spec, field.NewPath("spec"))
	if len(errs) > 0 {
		return &invalidSpec{errs}
	}
	if err := held.write(datadir.Space(m.config.DataDir, name)); err != nil { // with which it starts again
		return err
	}
	return m.apply(ctx, object, held, settings)
}

// moveStoreFromPod stops the process of a space, and is fetchStore if that is a pod. It checks a store that came from a pod. If it
// fails, the process is started again.
func (m *Manager) moveStoreFromPod(ctx context.Context, object *v1alpha1.Space, spec v1alpha1.SpaceSpec) error {
	name := object.Name
	if m.pods == nil && !m.hasReceived(name) {
		return nil
	}
	running := m.processes.get(name)
	if running != nil { // so that nothing lets the space run meanwhile
		stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), startTimeout) // nothing starts one that stops half way
		defer cancel()
		if err := running.Stop(stopping); err != nil {
			return err
		}
	}
	err := m.checkTrust(object) // again, now that nothing moves its store to its pod any more
	if err == nil {
		m.endServed(ctx, name, running)
		err = m.checkAndUnmark(ctx, name)
	}
	if err == nil {
		err = m.fetchStore(ctx, name, spec)
	}
	if err == nil {
		m.failedMoves.Forget(name)
		return nil
	}
	if ctx.Err() == nil && !errors.Is(err, errUntrusted) {
		m.failedMoves.Note(object.Name, wishOf(object), err)
		m.logger.Error(err, "Could not move a space to the shared process; Berth retries", "space", name)
	}
	if running != nil {
		m.processes.swap(name, m.newProcess(name, spec))
		m.start(name)
	}
	return fmt.Errorf("%w: %w", errStaysDedicated, err)
}

// giveUp is the remedy if a pod doesn't hand out its store.
const giveUp = "to delete the space without its store, set spec.deletionPolicy to Delete"

// fetchStoreToDelete is fetchStore for a space that is being deleted, and whose store is to be retained or copied. It
// returns what it waits for, if it does not begin now.
func (m *Manager) fetchStoreToDelete(ctx context.Context, name string, d *deletion) (left string, err error) {
	before, err := readApplied(datadir.Space(m.config.DataDir, name))
	if err != nil || before == nil {
		return "", err
	}
	where, err := m.storeLocation(name)
	dir := datadir.Space(m.config.DataDir, name)
	// In a database server, the store stays where it is, and the snapshot is of what the pod sends.
	copied := where == nil && d.policy == v1alpha1.DeletionSnapshot && servedByPod(dir) && !m.isRestored(name)
	if err != nil || where == nil && !copied {
		return "", err
	}
	if m.pods == nil {
		return "", errNoPods // which also holds for a deletion without the store
	}
	if !d.announced { // which is in the status before the transfer begins, as that may take long
		d.announced = true
		return "the pod of the space sends its store; " + giveUp, nil
	}
	if time.Now().Before(d.fetchAfter) {
		return fmt.Sprintf("%s; Berth tries again at %s; %s", d.unfetched, d.fetchAfter.UTC().Format(time.TimeOnly+" MST"), giveUp), nil
	}
	end, err := m.transfers.Begin(name)
	if err != nil {
		d.announced = false
		return err.Error() + "; the space waits until one of them is done; " + giveUp, nil
	}
	defer end()
	// Before it is here, so that a snapshot of it is never taken for one of a store of this process.
	if err := snapshot.MarkReceived(dir); err != nil {
		return "", err
	}
	transfer, stop := m.whileWanted(ctx, name, givenUp)
	defer stop()
	if copied {
		err = m.fetchCopy(transfer, name, before.Spec)
	} else {
		err = m.fetchStore(transfer, name, before.Spec)
	}
	switch {
	case err == nil:
		return "", nil
	case errors.Is(context.Cause(transfer), errGivenUp):
		return errGivenUp.Error(), nil
	default:
		d.unfetched, d.fetchAfter = err, time.Now().Add(d.fetchPause.Step())
		return "", fmt.Errorf("%w; if the pod was started again after its token had expired, restart Berth, which gives it another one; %s", err, giveUp)
	}
}

// removeStore removes the platform's copy of a store that the pod has confirmed.
func removeStore(dir string) error {
	for _, name := range []string{"store.db", "store.db-wal", "store.db-shm", "store.db.replaced", "store.db.replaced-wal"} {
		if err := removeIfThere(filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	return nil
}

// closeInOrder merges the log of a store that was not closed into its file. Nothing has the store open.
func closeInOrder(ctx context.Context, space, dir string) error {
	path := filepath.Join(dir, "store.db")
	if _, err := os.Stat(path + "-wal"); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	store, err := kine.Open(ctx, kine.Options{Path: path, Name: space})
	if err != nil {
		return fmt.Errorf("close the store of space %s: %w", space, err)
	}
	return store.Close()
}

// errGivenUp ends the transfer of a store that nobody wants any more.
var errGivenUp = errors.New("the store isn't wanted any more")

// givenUp reports whether the store of a space that is being deleted is to be deleted, too. object is nil if it was removed
// by force, so that nobody can say. One that isn't being deleted was created since, and is of a space that comes later.
func givenUp(object *v1alpha1.Space) bool {
	return object != nil && !object.DeletionTimestamp.IsZero() && object.Spec.DeletionPolicy == v1alpha1.DeletionDelete
}

// stays reports whether a space that moves to the shared process is to stay in its pod after all, because its spec says so or the
// admin trusts its pod no more, or is to be deleted.
func (m *Manager) stays(object *v1alpha1.Space) bool {
	if object == nil || !object.DeletionTimestamp.IsZero() {
		return true
	}
	want, _, _ := m.want(object)
	return want != nil && want.Spec.Isolation == v1alpha1.Dedicated || errors.Is(m.checkTrust(object), errUntrusted)
}

// whileWanted returns a context for the transfer of a space's store, which ends when unwanted reports true of its object: a pod
// may not hand out the store. Call stop once the transfer has ended.
func (m *Manager) whileWanted(ctx context.Context, name string, unwanted func(*v1alpha1.Space) bool) (transfer context.Context, stop func()) {
	transfer, cancel := context.WithCancelCause(ctx)
	var watch sync.WaitGroup
	safego.Go(&watch, "watch whether the store of a space is wanted", func() {
		_ = wait.PollUntilContextCancel(transfer, busyRetry, true, func(context.Context) (bool, error) {
			if !unwanted(m.objects.Get(name)) {
				return false, nil
			}
			cancel(errGivenUp)
			return true, nil
		})
	}, nil)
	return transfer, func() {
		cancel(nil)
		watch.Wait()
	}
}

// wish is what an admin says of a space that may make a move succeed.
type wish struct {
	uid        types.UID
	generation int64
	trusted    bool
}

func wishOf(object *v1alpha1.Space) wish {
	return wish{object.UID, object.Generation, trusted(object)}
}
