// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"net/http"
	"os"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/control"
	"github.com/berth-dev/berth/internal/storemark"
	"github.com/berth-dev/berth/isolation"
	"github.com/berth-dev/berth/kine"
	"github.com/berth-dev/berth/platform/datadir"
	"github.com/berth-dev/berth/platform/storesecret"
	"github.com/berth-dev/berth/shard"
	"github.com/berth-dev/berth/snapshot"
	"github.com/berth-dev/berth/syncer"
	"github.com/berth-dev/berth/translate"
)

// deletions are the spaces that are being deleted. It is safe for concurrent use.
type deletions struct {
	mu sync.Mutex
	of map[string]*deletion
}

// deletion is what this process knows about the deletion of a space. After a crash, the next process finds what it
// needs on the host: the object of the space is deleted last.
type deletion struct {
	end     func() // ends the operation on the space
	since   time.Time
	message string       // what it waits for
	pause   wait.Backoff // between attempts
	copied  bool         // the final snapshot has been taken
	// announced says that the status tells that the store comes from the pod.
	announced bool
	// fetchAfter is when the store is requested from the pod again, because that has failed with unfetched. fetchPause grows, so
	// that a pod that doesn't hand out its store leaves the transfers to others.
	fetchAfter time.Time
	fetchPause wait.Backoff
	unfetched  error
	policy     v1alpha1.DeletionPolicy
}

// Delete starts to delete a space: what it runs on the host, its store, its keys, and its credentials. The policy says
// what happens to the store; if it is empty, the policy of the space's object does. Delete returns when the deletion is
// recorded on the host. From then on, it continues until nothing is left, even after a crash. The status of the space
// says what it waits for.
func (m *Manager) Delete(ctx context.Context, name string, policy v1alpha1.DeletionPolicy) error {
	policies := []v1alpha1.DeletionPolicy{"", v1alpha1.DeletionDelete, v1alpha1.DeletionRetain, v1alpha1.DeletionSnapshot}
	if !slices.Contains(policies, policy) {
		return apierrors.NewBadRequest(fmt.Sprintf("policy=%s: must be Delete, Retain, or Snapshot", policy))
	}
	object := &v1alpha1.Space{}
	if err := m.objects.Client.Get(ctx, client.ObjectKey{Name: name}, object); err != nil {
		return err
	}
	if object.Spec.PlatformName != m.config.PlatformName || !m.owns(object) {
		return apierrors.NewNotFound(v1alpha1.Resource("spaces"), name)
	}
	if policy == "" {
		policy = object.Spec.DeletionPolicy
	}
	if policy == v1alpha1.DeletionSnapshot && m.snapshots.schedule(name).Bucket == nil {
		return apierrors.NewBadRequest("policy=Snapshot: " + errNoBucket.Error())
	}
	if policy != object.Spec.DeletionPolicy {
		if !object.DeletionTimestamp.IsZero() {
			return apierrors.NewConflict(v1alpha1.Resource("spaces"), name, fmt.Errorf("the space is already being deleted with policy=%s", object.Spec.DeletionPolicy))
		}
		before := object.DeepCopy()
		object.Spec.DeletionPolicy = policy
		if err := m.objects.Client.Patch(ctx, object, client.MergeFrom(before)); err != nil {
			return fmt.Errorf("set the deletion policy of space %s: %w", name, err)
		}
	}
	return m.objects.Client.Delete(ctx, object, client.Preconditions{UID: &object.UID})
}

// errNoBucket is returned if a snapshot must be taken before the deletion, but no storage for snapshots is configured.
var errNoBucket = errors.New("no storage for snapshots: start Berth with --snapshot-to, or use the policy Delete or Retain")

// serveDeletion serves the command that deletes spaces.
func (m *Manager) serveDeletion() {
	m.env.Commands.Handle("DELETE /spaces/{name}", control.Answer(func(r *http.Request) (any, error) {
		name := r.PathValue("name")
		if err := m.Delete(r.Context(), name, v1alpha1.DeletionPolicy(r.URL.Query().Get("policy"))); err != nil {
			return nil, err
		}
		status, _ := m.Status(name)
		return status, nil
	}))
}

// delete does the next steps of the deletion of a space, and returns when to continue. object is nil if it was removed
// by force in the meantime.
func (m *Manager) delete(ctx context.Context, name string, object *v1alpha1.Space) (again time.Duration, err error) {
	d, err := m.deletions.begin(name, func() (end func(), err error) { return m.changes.Begin(name, "being deleted") })
	if err != nil { // another operation is in progress
		return busyRetry, nil
	}
	if object != nil {
		d.policy = object.Spec.DeletionPolicy
	}
	left, err := m.deleteOnce(ctx, name, d)
	switch {
	case ctx.Err() != nil:
		return 0, nil
	case err != nil:
		m.logger.Error(err, "Could not delete a space; Berth retries", "space", name)
		left = err.Error() + "; Berth retries"
	case left == "":
		m.forget(name)
		if object != nil {
			if err := m.objects.Release(ctx, object); err != nil {
				return 0, err
			}
		}
		if err := removeAll(datadir.Deleted(m.config.DataDir, name)); err != nil {
			return 0, err
		}
		m.deletions.remove(name)
		m.config.Progress("Space %s is deleted", name)
		m.objects.Queue.Add(name) // there may be another object with this name by now
		return 0, nil
	}
	again = m.deletions.wait(d, left)
	if object == nil {
		return again, nil
	}
	return again, m.writeStatus(ctx, object, nil)
}

// deleteOnce does what can be done now, and returns what is left. Each step may be repeated.
func (m *Manager) deleteOnce(ctx context.Context, name string, d *deletion) (left string, err error) {
	if err := m.stop(ctx, name); err != nil {
		return "", err
	}
	if d.policy != v1alpha1.DeletionDelete {
		if left, err := m.fetchStoreToDelete(ctx, name, d); err != nil || left != "" {
			return left, err
		}
	}
	if d.policy == v1alpha1.DeletionSnapshot && !d.copied && snapshot.Exists(datadir.Space(m.config.DataDir, name)) {
		bucket := m.snapshots.schedule(name).Bucket
		if bucket == nil {
			return "", errNoBucket
		}
		taking, stop := m.whileWanted(ctx, name, givenUp) // a bucket may be slow, or not to be had
		_, err := m.snapshots.keeper.Take(taking, name, bucket)
		stop()
		switch {
		case err == nil:
			d.copied = true
		case errors.Is(context.Cause(taking), errGivenUp):
			return errGivenUp.Error(), nil
		default:
			return "", fmt.Errorf("%w; %s", err, giveUp)
		}
	}
	// The pod is removed first, so that it writes nothing while its objects are deleted. The store has been moved here,
	// or is no longer needed.
	if left, err := m.removePod(ctx, name); err != nil || left != "" {
		return left, err
	}
	if left, err := m.removeFromHost(ctx, name); err != nil || left != "" {
		return left, err
	}
	if d.policy != v1alpha1.DeletionRetain {
		if err := m.dropStore(ctx, name); err != nil {
			return "", err
		}
	}
	if err := errors.Join(m.shares.Remove(ctx, name), m.secrets.Remove(ctx, name), m.owners.Remove(ctx, name), m.clusters.Remove(ctx, name), m.shard.Forget(name)); err != nil {
		return "", err
	}
	if err := errors.Join(removeIfThere(datadir.Kubeconfig(m.config.DataDir, name)), removeAll(datadir.Dedicated(m.config.DataDir, name))); err != nil {
		return "", fmt.Errorf("delete the files of space %s: %w", name, err)
	}
	return "", datadir.MoveAway(m.config.DataDir, name, d.policy == v1alpha1.DeletionRetain)
}

func (m *Manager) removeFromHost(ctx context.Context, name string) (left string, err error) {
	id, err := datadir.StoreIDIn(datadir.Space(m.config.DataDir, name))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil // nothing was ever there, or everything is deleted
	}
	if err != nil {
		return "", err
	}
	space := translate.Space{Name: name, Store: id}
	account, err := client.New(syncer.AsAccount(m.env.Host, space), client.Options{Scheme: scheme.Scheme, Mapper: m.hostClient.RESTMapper()})
	if err != nil {
		return "", fmt.Errorf("make host client: %w", err)
	}
	if left, err := isolation.Remove(ctx, m.hostClient, account, space); err != nil || left != "" {
		return left, err
	}
	if volumes := m.shard.Host().VolumesBeingReclaimed(name); volumes > 0 {
		return fmt.Sprintf("the host deletes %d persistent volumes of its claims; if it does not, look at their events, or set their reclaim policy to Retain", volumes), nil
	}
	return "", nil
}

func removeAll(dir string) error {
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("remove %s: %w", dir, err)
	}
	return nil
}

func removeIfThere(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// begin returns the deletion of a space, and records it if it is new.
func (d *deletions) begin(name string, begin func() (end func(), err error)) (*deletion, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if one := d.of[name]; one != nil {
		return one, nil
	}
	end, err := begin()
	if err != nil {
		return nil, err
	}
	one := &deletion{
		end: end, since: time.Now(), message: "the space is being stopped",
		pause:      wait.Backoff{Duration: 100 * time.Millisecond, Factor: 1.5, Steps: math.MaxInt32, Cap: 5 * time.Second},
		fetchPause: wait.Backoff{Duration: 10 * time.Second, Factor: 2, Steps: math.MaxInt32, Cap: 30 * time.Minute},
	}
	if d.of == nil {
		d.of = map[string]*deletion{}
	}
	d.of[name] = one
	return one, nil
}

// wait records what a deletion waits for, and returns when to retry.
func (d *deletions) wait(one *deletion, left string) time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	one.message = left
	return one.pause.Step()
}

// remove ends the deletion of a space.
func (d *deletions) remove(name string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if one := d.of[name]; one != nil {
		one.end()
	}
	delete(d.of, name)
}

func (d *deletions) has(name string) bool {
	_, has := d.status(name)
	return has
}

// statuses returns the statuses of the spaces that are being deleted.
func (d *deletions) statuses() (list []shard.Status) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for name, deletion := range d.of {
		list = append(list, deletion.status(name))
	}
	return list
}

func (d *deletions) status(name string) (status shard.Status, deleting bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	deletion := d.of[name]
	if deletion == nil {
		return shard.Status{}, false
	}
	return deletion.status(name), true
}

func (d *deletion) status(name string) shard.Status {
	return shard.Status{Name: name, Conditions: []metav1.Condition{{
		Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: string(v1alpha1.SpaceDeleting), Message: d.message, LastTransitionTime: metav1.NewTime(d.since),
	}}}
}

// storeServer returns the database server with the store of a space; nil if the store is a file.
func (m *Manager) storeServer(ctx context.Context, space string) (*kine.Server, error) {
	store := m.config.Specs.Of(space).Store
	if !store.InServer() && m.deletions.has(space) { // one that was being deleted when the platform started has no settings
		before, err := readApplied(datadir.Space(m.config.DataDir, space))
		if err != nil {
			return nil, err
		}
		if before != nil {
			store = before.Spec.Store
		}
	}
	server, err := storesecret.Read(ctx, m.hostClient, m.config.StoreSecrets, space, store)
	if server == nil || err != nil {
		return nil, err
	}
	server.ID, err = datadir.KnownStoreID(m.config.DataDir, space)
	return server, err
}

// dropStore deletes the tables of a space that is being deleted from its database server. A space that never had any is done.
func (m *Manager) dropStore(ctx context.Context, space string) error {
	dir := datadir.Space(m.config.DataDir, space)
	if !storemark.Exists(dir) {
		return nil
	}
	server, err := m.storeServer(ctx, space)
	if err == nil && server == nil {
		err = errors.New("spec.store is gone")
	}
	if err == nil {
		err = kine.DropServer(ctx, space, *server)
	}
	if err != nil {
		return fmt.Errorf("%w; to leave the tables in the database, set spec.deletionPolicy to Retain", err)
	}
	return storemark.Remove(dir)
}
