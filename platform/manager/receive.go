// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/control"
	"github.com/berth-dev/berth/internal/safego"
	"github.com/berth-dev/berth/isolation"
	"github.com/berth-dev/berth/platform/datadir"
	"github.com/berth-dev/berth/platform/move"
	"github.com/berth-dev/berth/snapshot"
)

// serveMoves receives spaces from other shards.
func (m *Manager) serveMoves() {
	if m.env.Peers == nil {
		return
	}
	m.received = &move.Receiver{
		Dir: datadir.Received(m.config.DataDir), Begin: m.mayReceive,
		Admit:   func(_ string, size int64) (end func(), err error) { return m.volume.Reserve(size, true) },
		Arrived: m.examineReceived, Has: m.hasStore,
	}
	m.received.Serve(m.env.Peers.Commands)
	m.env.Peers.Commands.Handle("POST "+takePath, control.Answer(func(r *http.Request) (any, error) {
		space := r.FormValue("space")
		if err := isolation.CheckSpaceName(space); err != nil { // a name is a path here
			return nil, apierrors.NewBadRequest(err.Error())
		}
		return nil, m.takeOver(r.Context(), space, r.FormValue("awake") != "")
	}))
}

// examineReceived begins to examine a store that has arrived, while it is decided which shard has the space.
func (m *Manager) examineReceived(store string) {
	if snapshot.IsReceived(filepath.Dir(store)) { // nobody has trusted yet what the pod of the space has written
		return
	}
	examine := m.shard.ExamineAhead(store)
	safego.Go(&m.examining, "examine a store that has arrived", func() { examine(m.sending) }, nil)
}

// mayReceive fails unless a space moves to this shard, which has no other store of its name, and nothing else is done to it. Otherwise,
// nothing is until end is called.
func (m *Manager) mayReceive(ctx context.Context, space string) (end func(), err error) {
	if m.env.Peers.Stopping() { // what it received now, it might never serve
		return nil, apierrors.NewServiceUnavailable(fmt.Sprintf("shard %s is about to stop, and receives no spaces", m.config.Shard))
	}
	end, err = m.changes.Begin(space, "being received from another shard")
	if err != nil {
		return nil, err
	}
	object := &v1alpha1.Space{}
	if err = m.objects.Client.Get(ctx, client.ObjectKey{Name: space}, object); err == nil && (object.Status.MovingTo != m.config.Shard || object.Status.Shard == m.config.Shard) {
		err = apierrors.NewConflict(v1alpha1.Resource("spaces"), space, fmt.Errorf("the space does not move to shard %s", m.config.Shard))
	}
	if err == nil {
		err = m.checkNoOther(object)
	}
	if err == nil {
		err = m.checkDedicatedMax(object)
	}
	if err != nil {
		end()
		return nil, err
	}
	m.shard.Host().BeginOwn(space) // meanwhile, so that the start doesn't wait for it; leftBehind is for a space that doesn't come
	return end, nil
}

// dropReceived removes what a shard has received, and caches, of a space without an object, which does not come any more.
func (m *Manager) dropReceived(name string) (again time.Duration, err error) {
	if m.received == nil {
		return 0, nil
	}
	end, err := m.changes.Begin(name, "being cleaned up after a move")
	if err != nil {
		return busyRetry, nil // it may be being received, and becomes own then
	}
	defer end()
	if err := m.received.Drop(name); err != nil {
		return 0, err
	}
	m.notComing(name)
	return 0, nil
}

// checkDedicatedMax fails if a dedicated space can't have its pod managed by this shard.
func (m *Manager) checkDedicatedMax(object *v1alpha1.Space) error {
	if object.Status.Isolation != v1alpha1.Dedicated {
		return nil
	}
	if m.pods == nil || m.processes.get(object.Name) == nil && len(m.processes.all()) >= m.config.DedicatedMax {
		return apierrors.NewForbidden(v1alpha1.Resource("spaces"), object.Name, fmt.Errorf("shard %s may have no more dedicated spaces; raise --dedicated-max", m.config.Shard))
	}
	return nil
}

// checkNoOther fails if this shard has the store of another space of the same name: one whose object was removed by force.
func (m *Manager) checkNoOther(object *v1alpha1.Space) error {
	dir := datadir.Space(m.config.DataDir, object.Name)
	id, err := datadir.StoreIDIn(dir)
	if errors.Is(err, os.ErrNotExist) || err == nil && id == claimedBy(object) {
		return nil
	}
	return errors.Join(err, apierrors.NewConflict(v1alpha1.Resource("spaces"), object.Name,
		fmt.Errorf("shard %s has the store of an earlier space of this name in %s; move that directory away", m.config.Shard, dir)))
}

// hasArrived reports whether this shard has received the store of a space that counts, and has not made it the space's yet.
func (m *Manager) hasArrived(object *v1alpha1.Space) bool {
	if m.received == nil || object.Status.Shard != m.config.Shard {
		return false
	}
	dir := m.received.Complete(object.Name)
	return dir != "" && isStore(dir, claimedBy(object), func(moves int64) bool { return moves == ptr.Deref(object.Status.Moves, 0) })
}

// isStore reports whether a directory has a store with an ID, and a number of moves that suits.
func isStore(dir, id string, suits func(moves int64) bool) bool {
	have, err := datadir.StoreIDIn(dir)
	if err != nil || have != id {
		return false
	}
	moves, err := datadir.Moves(dir)
	return err == nil && suits(moves)
}

// hasStore reports whether this shard has the store of a space with an ID, which has moved more often than newer, and not only a copy of it
// that may never count.
func (m *Manager) hasStore(space, id string, newer int64) bool {
	if isStore(datadir.Space(m.config.DataDir, space), id, func(moves int64) bool { return moves > newer }) {
		return true
	}
	object := m.objects.Get(space)
	return object != nil && ptr.Deref(object.Status.Moves, 0) > newer && m.hasArrived(object)
}

// takeOver serves a space that this shard has received, and whose object names this shard. If the space was awake, it returns when the
// space serves.
func (m *Manager) takeOver(ctx context.Context, space string, awake bool) error {
	object := &v1alpha1.Space{}
	if err := m.objects.Client.Get(ctx, client.ObjectKey{Name: space}, object); err != nil {
		return fmt.Errorf("read Space object %s: %w", space, err)
	}
	end, err := m.changes.Begin(space, "being taken over from another shard")
	if err != nil {
		return err
	}
	defer end()
	if m.hasArrived(object) {
		if err := m.checkNoOther(object); err != nil {
			return err
		}
		if err := m.discardDir(space); err != nil { // one that is here already is from before the space was elsewhere
			return err
		}
		if err := m.received.Take(space, datadir.Space(m.config.DataDir, space), datadir.Dedicated(m.config.DataDir, space)); err != nil {
			return err
		}
	}
	if !m.owns(object) {
		return apierrors.NewConflict(v1alpha1.Resource("spaces"), space, fmt.Errorf("shard %s doesn't have the space", m.config.Shard))
	}
	m.moved.Delete(space)
	m.noteObject(object)
	if _, err := m.run(ctx, object); m.applied.get(space) == nil { // otherwise, it runs with an earlier spec if this one is invalid
		return err
	}
	process := m.processes.get(space)
	if !awake || process != nil {
		m.start(space)
	}
	switch {
	case !awake:
		return nil
	case process != nil:
		return process.AwaitServing(ctx)
	default:
		return m.shard.Wake(ctx, space)
	}
}
