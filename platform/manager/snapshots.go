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
	"k8s.io/klog/v2"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/control"
	"github.com/berth-dev/berth/internal/safego"
	"github.com/berth-dev/berth/platform/datadir"
	"github.com/berth-dev/berth/platform/spaceprocess"
	"github.com/berth-dev/berth/snapshot"
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
	changes   *changes
	// ensure creates the object of a space that was restored, unless it is there.
	ensure func(ctx context.Context, space string) error
	// checkOwn fails if the object of a space is another platform's.
	checkOwn func(ctx context.Context, space string) error

	restoring sync.Mutex // one at a time in this process
	transfers *transfers // to processes of dedicated spaces
}

// startSnapshots lets other commands take and restore snapshots, and takes those
// that are scheduled.
func (m *Manager) startSnapshots(context.Context) (err error) {
	o := m.config.Snapshots
	config := snapshot.Config{
		Dir: datadir.Spaces(m.config.DataDir), Scratch: datadir.Scratch(m.config.DataDir), Spaces: allSpaces{spaceprocess.Snapshots{Shard: m.shard}, m},
		Elsewhere: func(space string) bool { return m.processes.get(space) != nil }, Foreign: m.pods != nil, Volume: m.volume,
		Every: o.Every, Keep: o.Keep, Observe: m.env.Metrics.Snapshot, Logger: m.logger,
	}
	buckets := map[string]*snapshot.Bucket{}
	for _, to := range m.config.SnapshotDestinations {
		if buckets[to], err = snapshot.Open(to); err != nil {
			return err
		}
		if to != o.To {
			config.Others = append(config.Others, buckets[to])
		}
	}
	config.Bucket, config.Schedule = buckets[o.To], m.snapshotSchedule(buckets)
	s := &snapshots{
		buckets: buckets, schedule: config.Schedule,
		changes: &m.changes, shard: m.shard, dataDir: m.config.DataDir, logger: m.logger, ensure: m.ensureObject, checkOwn: m.checkOwn,
		elsewhere: m.elsewhere, pods: m.pods != nil, transfers: &m.restores,
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
		infos, err := bucket.List(r.Context(), space)
		return SnapshotList{Snapshots: infos}, err
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

// list returns all snapshots in all places, by place. A place that can't be reached hides no other.
func (s *snapshots) list(ctx context.Context) (all SnapshotList) {
	urls := slices.Sorted(maps.Keys(s.buckets))
	infos, errs := make([][]snapshot.Info, len(urls)), make([]error, len(urls))
	var listing sync.WaitGroup
	for i, url := range urls {
		safego.Go(&listing, "list snapshots", func() {
			ctx, cancel := context.WithTimeoutCause(ctx, listTimeout, fmt.Errorf("not done within %s", listTimeout))
			defer cancel()
			infos[i], errs[i] = s.buckets[url].List(ctx, "")
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
