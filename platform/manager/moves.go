// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/control"
	"github.com/berth-dev/berth/internal/safego"
	"github.com/berth-dev/berth/isolation"
	"github.com/berth-dev/berth/platform/datadir"
	"github.com/berth-dev/berth/platform/move"
)

const (
	// takePath is the command by which a shard that has sent a space has the other one serve it.
	takePath = "/move/take"
	// requestTime is how long requests that have begun may take to end before a space is stopped that moves.
	requestTime = 2 * time.Second
	// restTime and restRate limit how long the other shard may take for what is copied while the space doesn't run: so long, and longer for
	// a store of so many bytes a second.
	restTime, restRate = 15 * time.Second, 8 << 20
	// takeTime limits how long the other shard may take to serve a space. Requests wait meanwhile.
	takeTime = 10 * time.Second
	// takePause is between two requests to the other shard to serve a space, while it is busy with the space.
	takePause = 10 * time.Millisecond
	// decidePause is between two attempts to write which shard has a space.
	decidePause = 200 * time.Millisecond
	// disownPause is the interval at which a shard checks whether pods of a space that has left it still use its DNS.
	disownPause = 5 * time.Second
)

// errCantMove is of a space that can't move to another shard. It stays, and serves.
var errCantMove = errors.New("a dedicated space that runs on the machine of its shard stays there; set spec.isolation to Shared before it moves")

// errElsewhere is of a space that another shard has by now, or may have.
var errElsewhere = errors.New("another shard may have the space")

// moveIfPossible moves a space to the shard that the status of its object names. If that can't be, the object says why, and names no shard
// any more.
func (m *Manager) moveIfPossible(ctx context.Context, object *v1alpha1.Space) error {
	err := error(nil)
	if object.Status.MovingTo != m.config.Shard {
		m.placeBeforeMove(ctx, object)
		if err := m.failedMoves.Check(object.Name, wishOf(object)); err != nil {
			m.objects.Queue.AddAfter(object.Name, refreshInterval)
			return nil // it was tried just now, and has stopped the space for that
		}
		if err = m.moveAway(ctx, object); !errors.Is(err, errCantMove) && !apierrors.IsForbidden(err) {
			return err
		}
		m.recordEvent(ctx, object, corev1.EventTypeWarning, v1alpha1.ReasonNotMoved, object.Status.MovingTo+object.ResourceVersion, err.Error())
	}
	updated := object.DeepCopy()
	updated.Status.MovingTo = ""
	return m.objects.Client.Status().Patch(ctx, updated, client.MergeFromWithOptions(object, client.MergeFromWithOptimisticLock{}))
}

// placeBeforeMove has a space run that has no place here, because an earlier attempt to move it has ended without one. Whether it can move
// doesn't depend on that.
func (m *Manager) placeBeforeMove(ctx context.Context, object *v1alpha1.Space) {
	name := object.Name
	if m.applied.get(name) != nil && m.hasPlace(name) {
		return
	}
	end, err := m.changes.Begin(name, "being changed")
	if err != nil {
		return // something else is done to it now
	}
	defer end()
	if !m.hasPlace(name) {
		m.applied.remove(name)
	}
	isNew, err := m.run(ctx, object)
	if isNew {
		m.start(name)
	}
	if err != nil {
		m.logger.V(1).Info("A space does not run before it moves", "space", name, "reason", err.Error())
	}
}

// moveAway moves a space to another shard. It runs until then, and its requests wait for the end of the move, whatever that is. The status
// of its object decides which shard has the space: this one until it names the other, and the other one from then on. A crash at any point
// leaves the space on the one that it names, with a complete store.
func (m *Manager) moveAway(ctx context.Context, object *v1alpha1.Space) error {
	name, to := object.Name, object.Status.MovingTo
	process := m.processes.get(name)
	if process != nil && m.pods == nil {
		return errCantMove
	}
	end, err := m.changes.Begin(name, "being moved to shard "+to)
	if err != nil {
		return err
	}
	defer end()
	m.moving.Store(name, true)
	defer m.moving.Delete(name)
	began := time.Now()
	other := m.env.Peers.Command(to)
	sending := move.NewSending(name, datadir.Space(m.config.DataDir, name), ptr.Deref(object.Status.Moves, 0)+1, other)
	sending.Process = m.podFilesHere(name)
	wanted, stop := m.whileWanted(ctx, name, func(now *v1alpha1.Space) bool {
		return now == nil || !now.DeletionTimestamp.IsZero() || now.Status.MovingTo != to
	})
	defer stop()
	if err := sending.Base(wanted); err != nil {
		return err
	}
	idle, cancel := context.WithTimeout(ctx, requestTime)
	release := sync.OnceFunc(m.traffic.Hold(idle, name))
	cancel()
	defer release()
	steps := moveSteps{time.Now()}
	awake := m.shard.Space(name) != nil || process != nil
	switch err := m.handOver(ctx, wanted, object, sending, &steps); {
	case errors.Is(err, errElsewhere):
		if process != nil {
			process.Disconnect()
		}
		m.forget(name) // what is here of it goes once that shard confirms that it has the space
		return err
	case err != nil:
		m.failedMoves.Note(object.Name, wishOf(object), err)
		return errors.Join(err, m.placeAgain(ctx, object))
	}
	if process != nil { // watches begin again through the other shard
		process.Disconnect()
	}
	m.failedMoves.Forget(name)
	m.moved.Store(name, to)
	m.forget(name)
	// If this fails, the other shard finds out by itself that it has the space.
	taking, cancel := context.WithTimeout(ctx, takeTime)
	defer cancel()
	taken := take(taking, other, name, awake)
	if taken != nil {
		m.logger.Error(taken, "The shard that a space has moved to does not serve it yet", "space", name, "shard", to)
	}
	release()
	steps.note()
	m.logger.Info("Moved a space to another shard", "space", name, "shard", to, "took", time.Since(began), "requestsWaited", steps.all(),
		"stopping", steps.of(0), "copyingTheRest", steps.of(1), "deciding", steps.of(2), "starting", steps.of(3))
	if taken != nil {
		return nil // leftBehind removes the files once that shard confirms that it has the store
	}
	if err := m.discard(name); err != nil {
		m.logger.Error(err, "Could not remove the files of a space that has moved; Berth retries", "space", name)
	}
	return nil
}

// handOver stops a space, sends what is left of it, and has its object name the other shard. Until it does that, the space may stay if
// wanted ends. What is stopped of a space with a pod is only that this shard manages the pod, which runs on.
func (m *Manager) handOver(ctx, wanted context.Context, object *v1alpha1.Space, sending *move.Sending, steps *moveSteps) error {
	name := object.Name
	if err := m.stop(context.WithoutCancel(ctx), name); err != nil { // nothing starts one that stops half way
		m.processes.remove(name)
		return err
	}
	dir := datadir.Space(m.config.DataDir, name)
	if err := closeInOrder(ctx, name, dir); err != nil {
		return err
	}
	steps.note()
	limit := restTime
	if info, err := os.Stat(filepath.Join(dir, "store.db")); err == nil {
		limit += time.Duration(info.Size()/restRate) * time.Second
	}
	sent, cancel := context.WithTimeoutCause(wanted, limit, fmt.Errorf("the other shard took longer than %s", limit))
	defer cancel()
	if err := sending.Rest(sent); err != nil {
		return errors.Join(err, context.Cause(sent))
	}
	steps.note()
	err := m.decide(ctx, wanted, object)
	steps.note()
	return err
}

// moveSteps are when a move began to hold requests, and when each of its steps since then had ended.
type moveSteps []time.Time

func (s *moveSteps) note() { *s = append(*s, time.Now()) }

// of returns how long a step took.
func (s moveSteps) of(step int) time.Duration { return s[step+1].Sub(s[step]) }

func (s moveSteps) all() time.Duration { return s[len(s)-1].Sub(s[0]) }

// decide has the object of a space name the shard that it moves to. While the host doesn't say whether it does, neither shard may serve the
// space, so decide goes on until the host says so, or the process ends. It fails with errElsewhere unless the space stays here for sure. Once
// wanted has ended, the other shard may have removed what it has received, even if the space is to move there again.
func (m *Manager) decide(ctx, wanted context.Context, object *v1alpha1.Space) error {
	name, to, moves := object.Name, object.Status.MovingTo, ptr.Deref(object.Status.Moves, 0)
	var result error
	tried, logged := false, false
	err := wait.PollUntilContextCancel(ctx, decidePause, true, func(ctx context.Context) (done bool, _ error) {
		object := &v1alpha1.Space{}
		err := m.objects.Client.Get(ctx, client.ObjectKey{Name: name}, object)
		now := object.Status
		switch {
		case err == nil && now.Shard == to && ptr.Deref(now.Moves, 0) == moves+1:
			return true, nil
		case apierrors.IsNotFound(err), err == nil && (now.Shard != m.config.Shard || ptr.Deref(now.Moves, 0) != moves):
			result = fmt.Errorf("space %s: %w: its object says shard %q after %d moves", name, errElsewhere, now.Shard, ptr.Deref(now.Moves, 0))
			if !tried && (now.Shard == "" || err != nil) {
				result = fmt.Errorf("the Space object %s, or its status, is gone", name)
			}
			return true, nil
		case err == nil && (now.MovingTo != to || !object.DeletionTimestamp.IsZero() || wanted.Err() != nil && !tried):
			result = fmt.Errorf("space %s is not to move to shard %s any more", name, to)
			return true, nil
		case err == nil:
			updated := object.DeepCopy()
			updated.Status.Shard, updated.Status.MovingTo, updated.Status.Moves = to, "", ptr.To(moves+1)
			tried = true
			if err = m.objects.Client.Status().Patch(ctx, updated, client.MergeFromWithOptions(object, client.MergeFromWithOptimisticLock{})); err == nil {
				return true, nil
			}
		}
		if err != nil && !apierrors.IsConflict(err) && !logged {
			logged = true
			m.logger.Error(err, "Could not write yet which shard has a space; its requests wait", "space", name, "shard", to)
		}
		return false, nil
	})
	if err != nil && tried { // the process ends, and the next one reads what the host says
		return fmt.Errorf("space %s: %w: %w", name, errElsewhere, err)
	}
	return errors.Join(err, result)
}

// placeAgain has a space run that was stopped to move, and did not. If it has a process of its own, placeAgain waits until that serves.
func (m *Manager) placeAgain(ctx context.Context, object *v1alpha1.Space) error {
	if m.hasPlace(object.Name) {
		return nil // it was never stopped
	}
	if err := m.runAgain(object); m.applied.get(object.Name) == nil { // otherwise, it runs, maybe with an earlier spec
		return err
	}
	m.start(object.Name)
	process := m.processes.get(object.Name)
	if process == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, takeTime)
	defer cancel()
	return process.AwaitServing(ctx)
}

// hasPlace reports whether a space that this process is to have, has its place. It has none for a moment while it is stopped for a change.
func (m *Manager) hasPlace(name string) bool {
	if m.applied.get(name) == nil || m.processes.get(name) != nil {
		return true
	}
	_, has := m.shard.Status(name)
	return has
}

// discard removes the files of a space that another shard has.
func (m *Manager) discard(name string) error {
	if err := m.discardDir(name); err != nil {
		return err
	}
	return os.RemoveAll(datadir.Dedicated(m.config.DataDir, name))
}

// discardDir is discard without what this shard has of the process of the space.
func (m *Manager) discardDir(name string) error {
	gone := datadir.Deleted(m.config.DataDir, name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(gone), 0o700), os.RemoveAll(gone)); err != nil {
		return err
	}
	if err := os.Rename(datadir.Space(m.config.DataDir, name), gone); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return errors.Join(os.RemoveAll(gone), removeIfThere(datadir.Kubeconfig(m.config.DataDir, name)), m.shard.Forget(name))
}

// take has another shard serve a space that it has received, and returns when it does. The other shard may have begun by itself, because
// it watches the object; until it has finished that, take asks again.
func take(ctx context.Context, other *control.Client, space string, awake bool) error {
	values := url.Values{"space": {space}}
	if awake {
		values.Set("awake", "true")
	}
	var last error
	err := wait.PollUntilContextCancel(ctx, takePause, true, func(ctx context.Context) (done bool, _ error) {
		last = other.Do(ctx, http.MethodPost, takePath+"?"+values.Encode(), nil)
		return !apierrors.IsConflict(last), nil
	})
	return errors.Join(err, last)
}

// ownAtStart returns the spaces whose host objects a shard caches when it starts: those that have a directory here or
// whose objects name this shard, but none that another shard has. There are no requests for single spaces then.
func (m *Manager) ownAtStart() (names []string, err error) {
	if m.config.Shard == "" {
		return nil, nil
	}
	elsewhere := map[string]bool{}
	for _, object := range m.objects.All() {
		switch object.Status.Shard {
		case m.config.Shard:
			names = append(names, object.Name)
		case "":
		default:
			elsewhere[object.Name] = true
		}
	}
	entries, err := os.ReadDir(datadir.Spaces(m.config.DataDir))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("list spaces: %w", err)
	}
	for _, entry := range entries {
		if name := entry.Name(); entry.IsDir() && !elsewhere[name] && isolation.CheckSpaceName(name) == nil {
			names = append(names, name)
		}
	}
	return names, nil
}

// own notes with what a space runs that has got its place, and begins to cache its host objects.
func (m *Manager) own(name string, runs *applied) {
	m.owning.Lock()
	defer m.owning.Unlock()
	m.applied.set(name, runs)
	if m.processes.get(name) == nil { // else, when that serves
		m.arrivals.Served(name)
	}
	if m.config.Shard != "" {
		m.shard.Host().BeginOwn(name)
	}
}

// disown reduces what is cached of a space that has left this shard, when its pods don't use the DNS of this shard any
// more: until the other shard has started the space, they do.
func (m *Manager) disown(name string) {
	if m.config.Shard == "" {
		return
	}
	safego.While(m.sending, disownPause, "reduce what is cached of a space", func() (time.Duration, bool) { return disownPause, !m.hasLeft(name) })
}

// notComing reduces what is cached of a space that was to come to this shard, and doesn't.
func (m *Manager) notComing(name string) {
	if m.shard.Host().IsOwn(name) {
		m.hasLeft(name)
	}
}

// hasLeft reports whether nothing needs the cached objects of a space any more, or the space is back.
func (m *Manager) hasLeft(name string) bool {
	m.owning.Lock()
	defer m.owning.Unlock()
	if m.applied.get(name) != nil {
		return true
	}
	host := m.shard.Host()
	if addr, err := netip.ParseAddr(m.config.Pods.Address); err == nil && host.HasDNSAt(name, addr) {
		return false
	}
	if err := m.shard.Disown(name); err != nil {
		m.logger.Error(err, "Could not reduce what is cached of a space that has left this shard", "space", name)
	}
	return true
}
