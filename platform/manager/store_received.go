// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/bounds"
	"github.com/berth-dev/berth/internal/spacefiles"
	"github.com/berth-dev/berth/internal/storemark"
	"github.com/berth-dev/berth/kine"
	"github.com/berth-dev/berth/platform/datadir"
	"github.com/berth-dev/berth/shard/dedicated"
	"github.com/berth-dev/berth/snapshot"
	"github.com/berth-dev/berth/vcluster/pki"
)

// A store that comes from the pod of a space may have been written by a tenant who has taken over the pod. Limits that are
// enforced when something is written don't hold for it, and nothing has validated its objects. So the process of all shared
// spaces opens it only if the admin says so on the Space, and checks it before. See docs/decisions/0030.

// errUntrusted is of a space that can't be Shared because its store comes from its pod.
var errUntrusted = fmt.Errorf("spec.isolation: Shared: the store of the space comes from its pod, and would be opened in the process of all shared spaces; "+
	"if you trust what ran in the pod, annotate the Space with %s=true, else set spec.isolation to Dedicated", v1alpha1.AnnotationTrustDedicated)

func trusted(object *v1alpha1.Space) bool {
	return object.Annotations[v1alpha1.AnnotationTrustDedicated] == "true"
}

// hasReceived reports whether the store of a space is here, came from a pod, and has not been admitted.
func (m *Manager) hasReceived(name string) bool {
	dir := datadir.Space(m.config.DataDir, name)
	return snapshot.IsReceived(dir) && snapshot.Exists(dir)
}

// admitReceived checks the store that a deleted space of this name has left, if it came from a pod, before the space is Shared
// and gets its place. It fails with errUntrusted if the admin doesn't trust the store.
func (m *Manager) admitReceived(ctx context.Context, object *v1alpha1.Space) error {
	name := object.Name
	if where, err := m.storeLocation(name); err != nil || where != nil || m.applied.get(name) != nil {
		return err
	}
	dir := datadir.Space(m.config.DataDir, name)
	if !m.hasReceived(name) {
		return snapshot.UnmarkReceived(dir)
	}
	if m.goesOnInPod(name) {
		return nil // its pod serves it until the change to the shared process
	}
	settings, errs := m.config.Specs.Read(&object.Spec, field.NewPath("spec"))
	if len(errs) > 0 {
		return &invalidSpec{errs}
	}
	m.config.Specs.Set(name, settings) // for the check, and for a restore, after which the space runs
	if !trusted(object) {
		return errUntrusted
	}
	if err := m.failedMoves.Check(object.Name, wishOf(object)); err != nil {
		return err
	}
	end, err := m.transfers.Begin(name) // a check takes as long as a store is large
	if err != nil {
		return err
	}
	defer end()
	if err = m.checkAndUnmark(ctx, name); err != nil {
		m.failedMoves.Note(object.Name, wishOf(object), err)
		return err
	}
	m.failedMoves.Forget(name)
	return nil
}

// checkAndUnmark checks the store of a space if it came from a pod and is here. Nothing runs the space.
func (m *Manager) checkAndUnmark(ctx context.Context, name string) error {
	if !m.hasReceived(name) {
		return nil
	}
	dir := datadir.Space(m.config.DataDir, name)
	if storemark.Exists(dir) {
		if err := m.keepFiles(ctx, name); err != nil {
			return err
		}
	}
	if !storemark.Exists(dir) || m.isRestored(name) {
		if err := checkReceived(ctx, name, filepath.Join(dir, "store.db"), m.config.Specs.Limits(name)); err != nil {
			return err
		}
	}
	return snapshot.UnmarkReceived(dir)
}

// checkTimeout is far more than the check of the largest store takes.
const checkTimeout = 15 * time.Minute

// checkReceived checks a store that comes from the pod of a space.
func checkReceived(ctx context.Context, name, store string, limits bounds.Limits) error {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	if err := kine.CheckReceived(ctx, store, limits); err != nil {
		return fmt.Errorf("check the store of space %s from its pod: %w; set spec.isolation to Dedicated to run the space in a pod, and correct it there", name, err)
	}
	return nil
}

// storeLocationFile is in the directory of a space whose store is in its pod: the platform has no store of it, or one
// that is old.
const storeLocationFile = "store-location.json"

// storeLocation is what storeLocationFile says.
type storeLocation struct {
	// New says that the space had no store when it began to run in its pod.
	New bool `json:"new,omitempty"`
}

// storeLocation returns where the store of a space is: nil if the platform has it.
func (m *Manager) storeLocation(name string) (*storeLocation, error) {
	return readStoreLocation(datadir.Space(m.config.DataDir, name))
}

func readStoreLocation(dir string) (*storeLocation, error) {
	at, err := datadir.ReadJSON[storeLocation](filepath.Join(dir, storeLocationFile))
	if err != nil {
		return nil, fmt.Errorf("find where the store of a space is: %w", err)
	}
	return at, nil
}

func (m *Manager) noteStoreInPod(name string, at storeLocation) error {
	if err := datadir.WriteJSON(filepath.Join(datadir.Space(m.config.DataDir, name), storeLocationFile), at); err != nil {
		return fmt.Errorf("note where the store of space %s is: %w", name, err)
	}
	return nil
}

// errNoPods is of a space whose store is in a pod, on a platform that has none.
var errNoPods = errors.New("the store of the space is in a pod of its own, and this platform runs none; start berth with --dedicated-pods")

// errInPod is of a space whose store is in its pod, which this platform does not serve now. The volume is the only one
// that has it.
func errInPod(name string) error {
	return fmt.Errorf("the store of space %s is in its pod, and the space does not run there: create its Space object again with spec.isolation Dedicated, and raise --dedicated-max if that is reached; then restore the space, or delete it", name)
}

// copyMark is a file beside the file of a space, which says that this is a copy for the snapshot of a deletion, and not a store that was
// restored and is to be loaded into the database.
const copyMark = "store.copy"

// takeBack gives a space its directory, if that was retained. A copy for a deletion is removed: the deletion has left the database as it is.
func (m *Manager) takeBack(name string) error {
	if err := datadir.TakeBack(m.config.DataDir, name); err != nil {
		return err
	}
	dir := datadir.Space(m.config.DataDir, name)
	if _, err := os.Stat(filepath.Join(dir, copyMark)); err != nil || m.deletions.has(name) {
		return nil // there is none, or it is needed
	}
	if err := removeStore(dir); err != nil {
		return err
	}
	return removeIfThere(filepath.Join(dir, copyMark))
}

// A dedicated space with a store in a database server has its own process open it, with the credentials of its Secret, and no others. If the process is a pod,
// a tenant may have taken it over, and written anything into the database. So the mark of a received store is on the directory of the space
// from before the pod may open the store until the admin trusts it, and meanwhile this process reads nothing of the database but its epoch.
// The keys of the space are those here, which the pod saves in the database.

// servedByPod reports whether the pod of a space has its store, which is in a database server, or had it, and nobody has said since that the
// store can be trusted.
func servedByPod(dir string) bool { return storemark.Exists(dir) && snapshot.IsReceived(dir) }

// goesOnInPod reports whether a space without a place has a pod that serves it, with a store in a database server, until the space is changed.
func (m *Manager) goesOnInPod(name string) bool {
	return m.pods != nil && servedByPod(datadir.Space(m.config.DataDir, name)) && m.wasDedicated(name)
}

// beginInPod has the pod of a space, which must answer, open the store in the database server. The first time, it loads a snapshot that a
// restore has put here.
func (m *Manager) beginInPod(ctx context.Context, name string, p *dedicated.Process) error {
	dir := datadir.Space(m.config.DataDir, name)
	if !servedByPod(dir) {
		server, err := m.serverToOpen(ctx, name) // which brings the keys up to date
		if err == nil && server == nil {
			err = errors.New("spec.store is gone")
		}
		if restored := filepath.Join(dir, "store.db"); err == nil && m.isRestored(name) {
			if _, err = kine.RestoreServer(ctx, restored, name, *server); err == nil {
				err = os.Remove(restored)
			}
		}
		if err == nil {
			err = m.noteDedicated(ctx, name)
		}
		if err == nil && !storemark.Exists(dir) {
			err = storemark.Write(dir, storemark.Mark{Database: string(server.Type) + " database"})
		}
		if err == nil {
			err = snapshot.MarkReceived(dir)
		}
		if err != nil {
			return err
		}
	}
	return m.beginAgain(ctx, name, p)
}

// noteDedicated has the object of a space say that the space is dedicated, before its pod writes its database: a shard that makes the directory
// of the space anew knows from there that a pod has.
func (m *Manager) noteDedicated(ctx context.Context, name string) error {
	if m.config.Shard == "" {
		return nil
	}
	object := &v1alpha1.Space{}
	if err := m.objects.Client.Get(ctx, client.ObjectKey{Name: name}, object); err != nil {
		return fmt.Errorf("read Space object %s: %w", name, err)
	}
	if object.Status.Isolation == v1alpha1.Dedicated {
		return nil
	}
	updated := object.DeepCopy()
	updated.Status.Isolation = v1alpha1.Dedicated
	if err := m.objects.Client.Status().Patch(ctx, updated, client.MergeFrom(object)); err != nil {
		return fmt.Errorf("write status of Space object %s: %w", name, err)
	}
	return nil
}

// beginAgain has the pod of a space open the store in the database server, even if another process has opened it since the pod did.
func (m *Manager) beginAgain(ctx context.Context, name string, p *dedicated.Process) error {
	if err := m.checkHere(ctx, name); err != nil {
		return err
	}
	if err := m.sendIdentity(ctx, name, p); err != nil {
		return err
	}
	return p.Begin(ctx)
}

// endServed stops a space with a store in a database server in its pod, so that the pod has saved everything. The pod may be on a node that
// is gone: it writes no more once another process has opened the store.
func (m *Manager) endServed(ctx context.Context, name string, p *dedicated.Process) {
	if p == nil || m.pods == nil || !servedByPod(datadir.Space(m.config.DataDir, name)) {
		return
	}
	if err := p.End(ctx); err != nil {
		m.logger.Error(err, "Could not stop a space in its pod; its store is taken over from the pod", "space", name)
	}
}

// keepFiles has the files of a space count that are here, and not those that its pod has saved in the database.
func (m *Manager) keepFiles(ctx context.Context, name string) error {
	server, err := m.storeServer(ctx, name)
	if server == nil || err != nil {
		return err
	}
	files, epoch, err := kine.ReadFiles(ctx, name, *server)
	if err != nil {
		return err
	}
	return spacefiles.WriteEpoch(datadir.Space(m.config.DataDir, name), max(epoch, files.Epoch))
}

// fetchCopy stops a space with a store in a database server in its pod, and makes a copy of the store, which the pod sends, the file of the
// space. spec is what the space runs with there.
func (m *Manager) fetchCopy(ctx context.Context, name string, spec v1alpha1.SpaceSpec) error {
	p := m.newPod(name, spec)
	opening, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if err := m.openPod(opening, name, spec, p); err != nil {
		return err
	}
	if err := errors.Join(m.sendIdentity(opening, name, p), p.End(opening)); err != nil {
		return fmt.Errorf("stop space %s in its pod: %w", name, err)
	}
	if err := pki.WriteFile(filepath.Join(datadir.Space(m.config.DataDir, name), copyMark), nil); err != nil {
		return err
	}
	return m.receiveCopy(ctx, name, p)
}
