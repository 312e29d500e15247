// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/control"
	"github.com/berth-dev/berth/internal/safego"
	"github.com/berth-dev/berth/platform/datadir"
	"github.com/berth-dev/berth/platform/operations"
	"github.com/berth-dev/berth/platform/spaceprocess"
	"github.com/berth-dev/berth/snapshot"
	"github.com/berth-dev/berth/snapshot/replicator"
)

// snapshots takes and restores snapshots of a running berth's spaces.
type snapshots struct {
	shard   restorable
	dataDir string
	keeper  *snapshot.Keeper
	// buckets are those that spaces may name, by URL. schedule is that of a space.
	buckets  map[string]*snapshot.Bucket
	schedule func(space string) snapshot.Schedule
	logger   klog.Logger
	// elsewhere is a space that has a process of its own; nil if it has none.
	elsewhere func(space string) dedicatedSpace
	pods      bool // such processes are pods, with stores of their own
	changes   *operations.Changes
	// ensure creates the object of a space that was restored, unless it is there.
	ensure func(ctx context.Context, space string) error
	// checkOwn fails if the object of a space is another platform's.
	checkOwn func(ctx context.Context, space string) error
	// lost returns the ID of the store of a space that was lost, and how often it had moved. restored is called when it is there again.
	lost     func(ctx context.Context, space string) (store string, moves int64, err error)
	restored func(space string)
	// replicator is nil if there is none.
	replicator *replicator.Replicator

	restoring sync.Mutex            // one at a time in this process
	transfers *operations.Transfers // to processes of dedicated spaces
}

// startSnapshots lets other commands take and restore snapshots, and takes those
// that are scheduled.
func (m *Manager) startSnapshots(context.Context) (err error) {
	o := m.config.Snapshots
	config := snapshot.Config{
		Dir: datadir.Spaces(m.config.DataDir), Scratch: datadir.Scratch(m.config.DataDir), Spaces: allSpaces{spaceprocess.Snapshots{Shard: m.shard}, m},
		Elsewhere: func(space string) bool { return m.processes.get(space) != nil }, Foreign: m.pods != nil, Volume: m.volume, Server: m.storeServer,
		Every: o.Every, Keep: o.Keep, Observe: m.env.Metrics.Snapshot, Logger: m.logger,
	}
	for to, bucket := range m.buckets {
		if to != o.To {
			config.Others = append(config.Others, bucket)
		}
	}
	config.Bucket, config.Schedule = m.buckets[o.To], m.snapshotSchedule(m.buckets)
	s := &snapshots{
		buckets: m.buckets, schedule: config.Schedule,
		changes: &m.changes, shard: m.shard, dataDir: m.config.DataDir, logger: m.logger, ensure: m.ensureObject, checkOwn: m.checkOwn, lost: m.lostStore, restored: m.changed,
		elsewhere: m.elsewhere, pods: m.pods != nil, transfers: &m.restores, replicator: m.replicator,
	}
	if s.keeper, err = snapshot.NewKeeper(config); err != nil {
		return err
	}
	m.snapshots = s
	m.serveSnapshots()
	if config.Bucket == nil {
		return nil
	}
	run, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.keeper.Run(run)
	}()
	m.undoStart.add(func(context.Context) { stop(); <-done })
	m.config.Progress("Each space that has changed goes to %s every %s, unless its spec says otherwise; the newest %d are kept", config.Bucket, o.Every, o.Keep)
	return nil
}

// openBuckets opens the places of snapshots and replicas, and prepares to replicate stores.
func (m *Manager) openBuckets() (err error) {
	if len(m.config.SnapshotDestinations) == 0 {
		return nil
	}
	m.buckets = map[string]*snapshot.Bucket{}
	for _, to := range m.config.SnapshotDestinations {
		if m.buckets[to], err = snapshot.Open(to); err != nil {
			return err
		}
	}
	m.replicator, err = replicator.New(replicator.Config{
		Destination: m.replicaBucket, Scratch: datadir.ReplicaScratch(m.config.DataDir),
		SpaceDir: func(space string) string { return datadir.Space(m.config.DataDir, space) },
		StoreID:  func(space string) (string, error) { return datadir.StoreID(m.config.DataDir, space) },
		Moves:    func(space string) (int64, error) { return datadir.Moves(datadir.Space(m.config.DataDir, space)) },
		Counts:   m.hasCurrent,
		Volume:   m.volume, Changed: m.changed, Logger: m.logger,
	})
	return err
}

// replicaBucket returns where the store of a space is replicated to; nil if it isn't.
func (m *Manager) replicaBucket(space string) *snapshot.Bucket {
	if own := m.config.Specs.Of(space); own.Snapshots.Replicated && !own.Store.InServer() {
		return m.snapshotSchedule(m.buckets)(space).Bucket
	}
	return nil
}

// observeReplica notes in a status what the replica of a space has.
func (m *Manager) observeReplica(status *v1alpha1.SpaceStatus, space string) {
	if m.replicator == nil || m.replicaBucket(space) == nil {
		meta.RemoveStatusCondition(&status.Conditions, v1alpha1.ConditionReplicated)
		status.Replication = v1alpha1.ReplicationStatus{}
		if m.replicator != nil {
			m.replicator.Check(space)
		}
		return
	}
	m.replicator.Check(space)
	condition := metav1.Condition{Type: v1alpha1.ConditionReplicated, Status: metav1.ConditionFalse, ObservedGeneration: status.ObservedGeneration}
	state, known := m.replicator.State(space)
	switch {
	case !known && meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionReplicated) != nil:
		return // it is as it was when the last process ended: it isn't known yet, or the store isn't open, and nothing has written to it
	case !known:
		condition.Reason, condition.Message = v1alpha1.ReasonBehind, "the replica is made when the space wakes"
	case state.Reason == replicator.UpToDate:
		condition.Status, condition.Reason = metav1.ConditionTrue, v1alpha1.ReasonUpToDate
		condition.Message = "the replica has all writes up to the last second"
	default:
		condition.Reason, condition.Message = string(state.Reason), replicaMessage(state)
	}
	meta.SetStatusCondition(&status.Conditions, condition)
	if !known {
		return
	}
	status.Replication = v1alpha1.ReplicationStatus{Revision: state.Revision, MissingWrites: state.Rows, Time: inStatus(state.Time), BehindSince: inStatus(state.Since)}
}

// inStatus returns a time as a status has it; nil if it is zero.
func inStatus(t time.Time) *metav1.Time {
	if t.IsZero() {
		return nil
	}
	return ptr.To(metav1.NewTime(t.Truncate(time.Second)))
}

// replicaMessage says what is missing in a replica, and why.
func replicaMessage(state replicator.State) string {
	message := "the replica is being made; until then, a lost volume loses everything since the last snapshot"
	if state.Revision > 0 {
		message = fmt.Sprintf("a lost volume loses %d writes since %s, which are not in the replica", state.Rows, state.Since.UTC().Format(time.RFC3339))
		if state.Rows == 0 && !state.Since.IsZero() { // a dedicated space's process doesn't answer
			message = fmt.Sprintf("a lost volume may lose writes since %s", state.Since.UTC().Format(time.RFC3339))
		}
	}
	switch state.Reason {
	case replicator.Behind:
		if state.Revision == 0 && state.Rows == 0 { // a dedicated space sleeps, or its process doesn't answer
			message = "since the last start of Berth, it isn't known what the replica has"
		}
		if state.Err != "" {
			return message + "; Berth retries: " + state.Err
		}
	case replicator.Unreachable:
		if state.Revision == 0 {
			message = "since the last start of Berth, it isn't known what the replica has"
		}
		return message + "; check the place of the snapshots, and the credentials for it: " + state.Err
	case replicator.StoreBehind:
		return "the replica has writes that the store doesn't have, because the volume has an old store, or has lost it. Berth changes nothing of the replica: " +
			"restore it with `berth snapshot restore SPACE/latest`, or to keep this store, delete the objects of the replica"
	case replicator.TakenOver:
		return message + ", because another process replicates the space: stop that, and restart this one"
	}
	return message
}

// snapshotSchedule is what the specs say, and the platform's settings where they say nothing.
func (m *Manager) snapshotSchedule(buckets map[string]*snapshot.Bucket) func(space string) snapshot.Schedule {
	usual := m.config.Snapshots
	return func(space string) snapshot.Schedule {
		own := m.config.Specs.Of(space).Snapshots
		s := snapshot.Schedule{Bucket: buckets[cmp.Or(own.To, usual.To)], Every: own.Every, Keep: cmp.Or(own.Keep, usual.Keep)}
		if own.Every < 0 {
			s.Every = usual.Every
		}
		return s
	}
}

// Snapshot takes a snapshot of a space, which may sleep, to the bucket of a URL, or to where scheduled ones go if it is
// empty.
func (m *Manager) Snapshot(ctx context.Context, space, to string) (snapshot.Info, error) {
	bucket, err := m.snapshots.bucket(to, space, "to")
	if err != nil {
		return snapshot.Info{}, err
	}
	if _, ok := m.shard.Status(space); !ok && m.processes.get(space) == nil {
		return snapshot.Info{}, apierrors.NewNotFound(v1alpha1.Resource("spaces"), space)
	}
	return m.snapshots.keeper.Take(ctx, space, bucket)
}

// RestoreRequest says what to restore.
type RestoreRequest struct {
	ID   string // of the snapshot, or the name of a space for its newest
	From string // URL of the bucket; where scheduled ones go if empty
	As   string // name of the space that it becomes; that which it was taken of if empty
	// Replace has it take the place of a space named As.
	Replace bool
	// TrustDedicated has the store of a snapshot be opened in this process that is from the pod of a dedicated space.
	TrustDedicated bool
}

// Restore makes a space of a snapshot, and returns when it serves requests. One restore is done at a time in this process,
// besides those of dedicated spaces, which their own processes do.
func (m *Manager) Restore(ctx context.Context, r RestoreRequest) (*Restored, error) {
	id, err := snapshot.ParseID(r.ID)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	bucket, err := m.snapshots.bucket(r.From, id.Space, "from")
	if err != nil {
		return nil, err
	}
	if r.TrustDedicated {
		bucket = bucket.Trusted()
	}
	return m.snapshots.restore(ctx, bucket, r.ID, r.As, r.Replace)
}

// serveSnapshots lets other commands list, take, and restore snapshots.
func (m *Manager) serveSnapshots() {
	mux := m.env.Commands
	mux.Handle("GET /snapshots", control.Answer(func(r *http.Request) (any, error) {
		space, from := r.URL.Query().Get("space"), r.URL.Query().Get("from")
		if space == "" && from == "" && len(m.snapshots.buckets) > 0 {
			return m.snapshots.list(r.Context()), nil
		}
		bucket, err := m.snapshots.bucket(from, space, "from")
		if err != nil {
			return nil, err
		}
		return ListSnapshots(r.Context(), bucket, space)
	}))
	mux.Handle("POST /snapshots", control.Answer(func(r *http.Request) (any, error) {
		return m.Snapshot(r.Context(), r.URL.Query().Get("space"), r.URL.Query().Get("to"))
	}))
	mux.Handle("POST /snapshots/restore", control.Answer(func(r *http.Request) (any, error) {
		query := r.URL.Query()
		return m.Restore(r.Context(), RestoreRequest{
			ID: query.Get("id"), From: query.Get("from"), As: query.Get("as"), Replace: query.Has("replace"), TrustDedicated: query.Has("trust-dedicated"),
		})
	}))
}

// SnapshotList are snapshots, and why some could not be listed.
type SnapshotList struct {
	Snapshots []snapshot.Info `json:"snapshots"`
	Failures  []string        `json:"failures,omitempty"`
}

// ListSnapshots returns the snapshots and replicas of a space, or of all if space is empty. It fails if it finds none.
func ListSnapshots(ctx context.Context, bucket *snapshot.Bucket, space string) (list SnapshotList, err error) {
	if list.Snapshots, err = bucket.All(ctx, space); err != nil && len(list.Snapshots) > 0 {
		list.Failures, err = []string{err.Error()}, nil
	}
	return list, err
}

// list returns all snapshots in all places, by place. A place that can't be reached hides no other.
func (s *snapshots) list(ctx context.Context) (all SnapshotList) {
	urls := slices.Sorted(maps.Keys(s.buckets))
	infos, errs := make([][]snapshot.Info, len(urls)), make([]error, len(urls))
	var listing sync.WaitGroup
	for i, url := range urls {
		safego.Go(&listing, "list snapshots", func() {
			ctx, cancel := context.WithTimeoutCause(ctx, listTimeout, fmt.Errorf("not done within %s", listTimeout))
			defer cancel()
			infos[i], errs[i] = s.buckets[url].All(ctx, "")
		}, func(err error) { errs[i] = err })
	}
	listing.Wait()
	for i := range urls {
		all.Snapshots = append(all.Snapshots, infos[i]...)
		if errs[i] != nil {
			all.Failures = append(all.Failures, errs[i].Error())
		}
	}
	return all
}

// listTimeout bounds what a list of all places waits for one of them.
const listTimeout = 30 * time.Second

// bucket is that of a URL, or else where scheduled ones of a space go. flag is by what a person names one.
func (s *snapshots) bucket(url, space, flag string) (*snapshot.Bucket, error) {
	if url != "" {
		return snapshot.Open(url)
	}
	if bucket := s.schedule(space).Bucket; bucket != nil {
		return bucket, nil
	}
	return nil, apierrors.NewBadRequest(fmt.Sprintf("no storage for snapshots: set --%s, or start Berth with --snapshot-to", flag))
}

// dedicatedSpace is what restores need of a space with its own process.
type dedicatedSpace interface {
	PutStore(ctx context.Context, path string, restore bool) error
	PutReplica(ctx context.Context, path, rows string) error
	Wake(ctx context.Context) error
}

func (m *Manager) elsewhere(space string) dedicatedSpace {
	if process := m.processes.get(space); process != nil {
		return process
	}
	return nil
}

// allSpaces are the spaces of the shard and those with their own processes, for snapshots.
type allSpaces struct {
	spaceprocess.Snapshots
	manager *Manager
}

// Names implements [snapshot.Spaces], like the following methods.
func (s allSpaces) Names() []string {
	return slices.AppendSeq(s.Snapshots.Names(), maps.Keys(s.manager.processes.all()))
}

func (s allSpaces) Snapshot(ctx context.Context, space, path string) (elsewhere bool, err error) {
	if process := s.manager.processes.get(space); process != nil {
		if here, err := s.manager.notMovedYet(space); err != nil {
			return false, err
		} else if here {
			return false, snapshot.ErrAsleep // so that the file on this machine is copied
		}
		return true, process.CopyStore(ctx, path, s.manager.admitCopy(space))
	}
	return s.Snapshots.Snapshot(ctx, space, path)
}

// notMovedYet reports whether a space must have a pod, but its current store is still on this machine, where nothing
// runs it.
func (m *Manager) notMovedYet(space string) (bool, error) {
	if m.pods == nil {
		return false, nil
	}
	where, err := m.storeLocation(space)
	dir := datadir.Space(m.config.DataDir, space)
	return err == nil && where == nil && snapshot.Exists(dir) && !servedByPod(dir), err
}

func (s allSpaces) Revision(space string) int64 {
	if process := s.manager.processes.get(space); process != nil {
		state, err := process.State(context.Background())
		if err != nil {
			return 0
		}
		return state.Revision
	}
	return s.Snapshots.Revision(space)
}

func (s allSpaces) Wake(ctx context.Context, space string) error {
	if process := s.manager.processes.get(space); process != nil {
		return process.Wake(ctx)
	}
	return s.Snapshots.Wake(ctx, space)
}
