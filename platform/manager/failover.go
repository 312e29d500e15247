// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/internal/spacefiles"
	"github.com/berth-dev/berth/internal/storemark"
	"github.com/berth-dev/berth/kine"
	"github.com/berth-dev/berth/platform/datadir"
	"github.com/berth-dev/berth/platform/spaceprocess"
	"github.com/berth-dev/berth/platform/storesecret"
	"github.com/berth-dev/berth/snapshot"
	"github.com/berth-dev/berth/vcluster/pki"
)

// A space with a store in a database server has its files there, too. So another shard can serve it when its shard is dead: the status of
// its object names the other shard then. See docs/decisions/0061.

// mayTakeFiles reports whether the directory of a space, which this shard has to serve, can be made of what its database has.
func (m *Manager) mayTakeFiles(object *v1alpha1.Space) bool {
	return m.config.Shard != "" && object.Status.Shard == m.config.Shard && object.Spec.Store.InServer() && object.DeletionTimestamp.IsZero() &&
		claimedBy(object) != "" && m.applied.get(object.Name) == nil && !m.owns(object) && !m.hasArrived(object)
}

// takeFiles makes the directory of a space of what its database has. It fails with errStoreMissing if that has nothing.
func (m *Manager) takeFiles(ctx context.Context, object *v1alpha1.Space) error {
	name := object.Name
	end, err := m.changes.Begin(name, "being taken over from another shard")
	if err != nil {
		return errBusy
	}
	defer end()
	m.moved.Delete(name) // it has come back since
	server, err := m.serverOf(ctx, object)
	if err != nil {
		return err
	}
	files, _, err := kine.ReadFiles(ctx, name, *server)
	if err != nil {
		return err
	}
	if files.Epoch == 0 {
		return errStoreMissing
	}
	// What says that the pod of a space has written its database is lost with the directory.
	fromPod := object.Status.Isolation == v1alpha1.Dedicated
	switch {
	case m.pods != nil:
		if err := m.adoptPod(ctx, name, fromPod); err != nil {
			return err
		}
	case fromPod:
		return errNoPods
	}
	if err := m.replaceFiles(name, claimedBy(object), files, fromPod, func(dir string) error { return finishFiles(dir, object) }); err != nil {
		return err
	}
	m.logger.Info("Took the files of a space over from its database, as its shard was dead", "space", name)
	return nil
}

// finishFiles writes what the object of a space says, and its database doesn't, into a directory that is made of the files in the database.
func finishFiles(dir string, object *v1alpha1.Space) error {
	if err := datadir.SetMoves(dir, ptr.Deref(object.Status.Moves, 0)); err != nil { // the database may have those before the last move
		return err
	}
	if !storemark.Exists(dir) { // a pod may have left it out, so that the store would seem to be another one
		if err := storemark.Write(dir, storemark.Mark{Database: string(object.Spec.Store.Type) + " database"}); err != nil {
			return err
		}
	}
	if spec := ranWith(object); spec != nil {
		return spec.write(dir)
	}
	return nil
}

// ranWith returns what a space ran with on another shard, as far as its object says; nil if it is to run with what its spec says.
func ranWith(object *v1alpha1.Space) *applied {
	spec := &applied{Generation: object.Generation, Spec: *object.Spec.DeepCopy()}
	isDedicated := object.Status.Isolation == v1alpha1.Dedicated && object.Spec.Isolation != v1alpha1.Dedicated
	if isDedicated { // it has outgrown its share, or is not shared yet
		spec.Generation, spec.Spec.Isolation = object.Status.ObservedGeneration, v1alpha1.Dedicated
		within := meta.FindStatusCondition(object.Status.Conditions, v1alpha1.ConditionWithinShare)
		spec.Outgrown = within != nil && within.Reason == v1alpha1.ReasonDedicated
	}
	if isDedicated || ptr.Deref(object.Spec.Paused, false) {
		return spec
	}
	return nil
}

// errBusy is of a space to which something else is done now.
var errBusy = errors.New("something else is done to the space")

// serverOf returns the database server with the store of an object's space.
func (m *Manager) serverOf(ctx context.Context, object *v1alpha1.Space) (*kine.Server, error) {
	server, err := storesecret.Read(ctx, m.hostClient, m.config.StoreSecrets, object.Name, object.Spec.Store)
	if err == nil && server == nil {
		err = errors.New("spec.store is gone")
	}
	if err != nil {
		return nil, err
	}
	server.ID = claimedBy(object)
	return server, nil
}

// replaceFiles makes the directory of a space of files from its database. The spec that this shard ran the space with stays. fromPod says that
// the pod of the space has written the database. finish, if it isn't nil, writes more files into the directory.
func (m *Manager) replaceFiles(name, store string, files kine.Files, fromPod bool, finish func(dir string) error) error {
	if err := os.MkdirAll(datadir.Scratch(m.config.DataDir), 0o700); err != nil {
		return err
	}
	scratch, err := os.MkdirTemp(datadir.Scratch(m.config.DataDir), "files-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(scratch)
	dir := filepath.Join(scratch, name)
	if err := spacefiles.Write(dir, files.Data, files.Epoch); err != nil {
		return fmt.Errorf("write the files of space %s from its database: %w", name, err)
	}
	if id, err := datadir.StoreIDIn(dir); err != nil || id != store {
		return fmt.Errorf("the database of space %s has the files of another store, %s: %w", name, id, errors.Join(err, kine.ErrOtherSpace))
	}
	to := datadir.Space(m.config.DataDir, name)
	if fromPod || snapshot.IsReceived(to) {
		if err := snapshot.MarkReceived(dir); err != nil {
			return err
		}
	}
	if err := os.Rename(filepath.Join(to, appliedFile), filepath.Join(dir, appliedFile)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if finish != nil {
		if err := finish(dir); err != nil {
			return err
		}
	}
	gone := datadir.Deleted(m.config.DataDir, name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(gone), 0o700), os.MkdirAll(filepath.Dir(to), 0o700), os.RemoveAll(gone)); err != nil {
		return err
	}
	if err := os.Rename(to, gone); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if err := os.Rename(dir, to); err != nil {
		return err
	}
	return os.RemoveAll(gone)
}

// serverToOpen returns the database server with the store of a space that is about to start; nil if the store is a file. It makes sure that
// the files of the space are not older than those in the database, and that the space is this shard's: one that was stopped for a while
// must not take the store from the shard that has it now. If another process opens the store after that was asked, the start fails.
func (m *Manager) serverToOpen(ctx context.Context, space string) (*kine.Server, error) {
	server, err := m.storeServer(ctx, space)
	if server == nil || err != nil {
		return nil, err
	}
	files, epoch, err := kine.ReadFiles(ctx, space, *server)
	if err != nil {
		return nil, err
	}
	if err := m.checkHere(ctx, space); err != nil {
		return nil, err
	}
	if m.config.Shard != "" {
		server.Expected = &epoch
	}
	have, err := spacefiles.Epoch(datadir.Space(m.config.DataDir, space))
	if err != nil || files.Epoch <= have {
		return server, err
	}
	if err := m.replaceFiles(space, server.ID, files, false, nil); err != nil {
		return nil, err
	}
	m.logger.Info("Replaced the files of a space by newer ones from its database", "space", space, "epoch", files.Epoch, "had", have)
	return server, m.writeKubeconfig(ctx, space)
}

// checkHere fails if another shard has a space, by what the host says now.
func (m *Manager) checkHere(ctx context.Context, space string) error {
	if m.config.Shard == "" {
		return nil
	}
	object := &v1alpha1.Space{}
	if err := m.objects.Client.Get(ctx, client.ObjectKey{Name: space}, object); err != nil {
		return fmt.Errorf("read Space object %s: %w", space, err)
	}
	if m.isElsewhere(object) {
		return apierrors.NewConflict(v1alpha1.Resource("spaces"), space, fmt.Errorf("shard %s has the space", object.Status.Shard))
	}
	return nil
}

// saveFiles saves the files of a space in its database, if it is awake. One that sleeps does it when it starts.
func (m *Manager) saveFiles(ctx context.Context, name string) {
	space := m.shard.Space(name)
	if space == nil {
		return
	}
	if err := space.SaveFiles(ctx); err != nil {
		m.logger.Error(err, "Could not save the files of a space in its database; Berth retries when the space starts or stops", "space", name)
	}
}

// leaveFiles removes the directory of a space that another shard has, once the database has its files. A crash of this process before it
// saved them is the only reason why it hasn't, unless the space is being deleted. It reports false if the directory stays: the database has
// nothing, and the directory has a snapshot that was restored.
func (m *Manager) leaveFiles(ctx context.Context, object *v1alpha1.Space) (left bool, err error) {
	name := object.Name
	server, err := m.serverOf(ctx, object)
	if err != nil {
		return false, err
	}
	files, _, err := kine.ReadFiles(ctx, name, *server)
	switch {
	case err != nil:
		return false, err
	case files.Epoch > 0:
	case !object.DeletionTimestamp.IsZero(): // the other shard may have dropped the database, which must not get the keys of a deleted space
	case m.isRestored(name):
		return false, nil
	default:
		data, err := spacefiles.Read(datadir.Space(m.config.DataDir, name))
		if err == nil {
			err = kine.SaveFiles(ctx, name, *server, data)
		}
		if err != nil {
			return false, err
		}
	}
	return true, m.discard(name)
}

// isRestored reports whether the directory of a space has a store that a restore has put there, and that no start has loaded yet.
func (m *Manager) isRestored(name string) bool {
	_, err := os.Stat(filepath.Join(datadir.Space(m.config.DataDir, name), "store.db"))
	return err == nil
}

// reopen restarts a space of this shard whose store another shard had in the meantime, because this one had seemed dead. Whether the space
// is this shard's is asked again when it starts.
func (m *Manager) reopen(ctx context.Context, object *v1alpha1.Space) error {
	if m.config.Shard == "" || !object.Spec.Store.InServer() || m.shard.Space(object.Name) == nil {
		return nil
	}
	live, _ := m.shard.Status(object.Name)
	if store := meta.FindStatusCondition(live.Conditions, v1alpha1.ConditionStoreHealthy); store == nil || store.Reason != v1alpha1.ReasonStoreTakenOver {
		return nil
	}
	end, err := m.changes.Begin(object.Name, "being opened again")
	if err != nil {
		return nil // something else is done to it now
	}
	defer end()
	restarting, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	return m.shard.Restart(restarting, object.Name)
}

// encodeServer returns what a process needs to connect to the database server with the store of a space, as the Secret says now.
func (m *Manager) encodeServer(ctx context.Context, name string, store v1alpha1.Store) ([]byte, error) {
	server, err := storesecret.Read(ctx, m.hostClient, m.config.StoreSecrets, name, store)
	if err != nil {
		return nil, err
	}
	return spaceprocess.EncodeServer(server)
}

// giveServer prepares a dedicated space with a store in a database server for its process on this machine, which has the files in dir.
func (m *Manager) giveServer(ctx context.Context, name, dir string) error {
	server, err := m.serverToOpen(ctx, name)
	if server == nil || err != nil {
		return err
	}
	data, err := spaceprocess.EncodeServer(server)
	if err == nil {
		err = pki.WriteFile(filepath.Join(dir, spaceprocess.ServerFile), data)
	}
	return err
}

// renewServer gives the process of a dedicated space on this machine what its Secret says now, if the process has something else. It uses
// that at the next start of the space.
func (m *Manager) renewServer(ctx context.Context, name, dir string) error {
	store, path := m.config.Specs.Of(name).Store, filepath.Join(dir, spaceprocess.ServerFile)
	has, err := os.ReadFile(path)
	if !store.InServer() || err != nil { // it is written first when the process is prepared
		return nil
	}
	data, err := m.encodeServer(ctx, name, store)
	if err != nil || bytes.Equal(has, data) {
		return err
	}
	return pki.WriteFile(path, data)
}

// podServer returns what the pod of a space is to have to connect to the database server. If the Secret can't be read, that is what the pod
// has, so that its other credentials are renewed.
func (m *Manager) podServer(ctx context.Context, name string, store v1alpha1.Store) ([]byte, error) {
	data, err := m.encodeServer(ctx, name, store)
	if err == nil {
		m.pods.servers.Store(name, string(data))
		return data, nil
	}
	if last, has := m.pods.servers.Load(name); has {
		m.logger.Error(err, "Could not read the Secret with the store of a dedicated space; its pod keeps what it has", "space", name)
		return []byte(last.(string)), nil
	}
	return nil, err
}

// podServerChanged reports whether the Secret with the store of a space has changed since its pod got it.
func (m *Manager) podServerChanged(ctx context.Context, name string, store v1alpha1.Store) bool {
	if !store.InServer() {
		return false
	}
	data, err := m.encodeServer(ctx, name, store)
	last, has := m.pods.servers.Load(name)
	return err == nil && has && last != string(data)
}
