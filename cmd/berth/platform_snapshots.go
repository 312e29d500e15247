// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/berth-dev/berth/control"
	"github.com/berth-dev/berth/shard"
	"github.com/berth-dev/berth/snapshot"
	"github.com/berth-dev/berth/tenancy"
)

// snapshotOptions are the flags about scheduled snapshots.
type snapshotOptions struct {
	to    string
	every time.Duration
	keep  int
}

// leastSnapshotInterval keeps snapshots from being all that a machine does.
const leastSnapshotInterval = time.Minute

func (o *snapshotOptions) check() error {
	switch {
	case o.to == "":
		return nil
	case o.every < leastSnapshotInterval:
		return fmt.Errorf("--snapshot-every=%s: want %s or more", o.every, leastSnapshotInterval)
	case o.keep < 1:
		return fmt.Errorf("--snapshot-keep=%d: want 1 or more", o.keep)
	}
	if _, err := snapshot.Open(o.to); err != nil {
		return fmt.Errorf("--snapshot-to: %w", err)
	}
	return nil
}

// snapshots takes and restores snapshots of a running berth's spaces.
type snapshots struct {
	shard   *shard.Shard
	dataDir string
	keeper  *snapshot.Keeper
	// elsewhere tells whether a space runs in a process of its own.
	elsewhere func(space string) bool

	restoring sync.Mutex // one at a time
}

func scratchDir(dataDir string) string { return filepath.Join(dataDir, "tmp") }

// startSnapshots lets other commands take and restore snapshots, and takes those
// that are scheduled.
func (p *platform) startSnapshots(context.Context) (err error) {
	o := p.options.snapshots
	config := snapshot.Config{
		Dir: filepath.Join(p.options.dataDir, "spaces"), Scratch: scratchDir(p.options.dataDir), Spaces: shardSpaces{p.shard},
		Every: o.every, Keep: o.keep, Observe: p.metrics.Snapshot, Logger: p.logger,
	}
	if o.to != "" {
		if config.Bucket, err = snapshot.Open(o.to); err != nil {
			return err
		}
	}
	s := &snapshots{shard: p.shard, dataDir: p.options.dataDir, elsewhere: func(space string) bool { return p.processes[space] != nil }}
	if s.keeper, err = snapshot.NewKeeper(config); err != nil {
		return err
	}
	s.serve(p.commands)
	if config.Bucket == nil {
		return nil
	}
	run, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.keeper.Run(run)
	}()
	p.onStop(func(context.Context) { stop(); <-done })
	p.say("Each space that has changed goes to %s every %s; the newest %d are kept", config.Bucket, o.every, o.keep)
	return nil
}

// shardSpaces are a shard's spaces, as snapshots see them.
type shardSpaces struct{ *shard.Shard }

func (s shardSpaces) Snapshot(ctx context.Context, name, path string) error {
	running := s.Space(name)
	if running == nil {
		return snapshot.ErrAsleep
	}
	err := running.Snapshot(ctx, path)
	if err != nil && ctx.Err() == nil && s.Space(name) != running {
		return snapshot.ErrAsleep // it fell asleep meanwhile
	}
	return err
}

func (s shardSpaces) Revision(name string) int64 {
	if running := s.Space(name); running != nil {
		if stats, err := running.StoreStats(context.Background()); err == nil {
			return stats.Revision
		}
	}
	return 0
}

func (s *snapshots) serve(mux *http.ServeMux) {
	mux.Handle("GET /snapshots", control.Answer(func(r *http.Request) (any, error) {
		bucket, err := s.bucket(r, "from")
		if err != nil {
			return nil, err
		}
		return bucket.List(r.Context(), r.URL.Query().Get("space"))
	}))
	mux.Handle("POST /snapshots", control.Answer(func(r *http.Request) (any, error) {
		bucket, err := s.bucket(r, "to")
		if err != nil {
			return nil, err
		}
		name := r.URL.Query().Get("space")
		if _, ok := s.shard.Status(name); !ok {
			return nil, apierrors.NewNotFound(spaceResource, name)
		}
		return s.keeper.Take(r.Context(), name, bucket)
	}))
	mux.Handle("POST /snapshots/restore", control.Answer(func(r *http.Request) (any, error) {
		bucket, err := s.bucket(r, "from")
		if err != nil {
			return nil, err
		}
		return s.restore(r.Context(), bucket, r.URL.Query().Get("id"), r.URL.Query().Get("as"))
	}))
}

// bucket is the one that a request names, or else where scheduled ones go.
func (s *snapshots) bucket(r *http.Request, parameter string) (*snapshot.Bucket, error) {
	if url := r.URL.Query().Get(parameter); url != "" {
		return snapshot.Open(url)
	}
	if bucket := s.keeper.Bucket(); bucket != nil {
		return bucket, nil
	}
	return nil, apierrors.NewBadRequest(fmt.Sprintf("where are the snapshots? name a place with --%s, or start berth with --snapshot-to", parameter))
}

// restored is what came of a restore.
type restored struct {
	Space    string           `json:"space"`
	Snapshot string           `json:"snapshot"`
	Changes  snapshot.Changes `json:"changes"` // of one that was given another name
}

func (s *snapshots) restore(ctx context.Context, bucket *snapshot.Bucket, name, as string) (*restored, error) {
	id, err := snapshot.ParseID(name)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	s.restoring.Lock()
	defer s.restoring.Unlock()
	if id, err = bucket.Find(ctx, id); err != nil {
		return nil, err
	}
	if s.elsewhere(id.Space) && as == "" || s.elsewhere(as) {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("space %s runs in a process of its own; stop berth, and restore the space while none runs", cmp.Or(as, id.Space)))
	}
	result := &restored{Space: id.Space, Snapshot: id.String()}
	if as == "" {
		err = s.replace(ctx, bucket, id)
	} else {
		result.Space = as
		result.Changes, err = s.clone(ctx, bucket, id, as)
	}
	if err != nil {
		return nil, err
	}
	return result, s.shard.Wake(ctx, result.Space)
}

// replace stops a space, whatever state it is in, and gives it back its place
// also if it could not be restored: it is as it was then.
func (s *snapshots) replace(ctx context.Context, bucket *snapshot.Bucket, id snapshot.ID) error {
	if err := tenancy.CheckSpaceName(id.Space); err != nil {
		return err
	}
	if err := s.shard.StopSpace(ctx, id.Space); err != nil {
		return err
	}
	err := snapshot.Replace(ctx, bucket, id, filepath.Join(s.dataDir, "spaces"), scratchDir(s.dataDir))
	if err != nil && !snapshot.Exists(filepath.Join(s.dataDir, "spaces", id.Space)) {
		return err
	}
	return errors.Join(err, s.shard.Add(id.Space))
}

func (s *snapshots) clone(ctx context.Context, bucket *snapshot.Bucket, id snapshot.ID, as string) (snapshot.Changes, error) {
	if err := tenancy.CheckSpaceName(as); err != nil {
		return snapshot.Changes{}, fmt.Errorf("--as: %w", err)
	}
	if _, there := s.shard.Status(as); there {
		return snapshot.Changes{}, fmt.Errorf("restore snapshot %s as %s: %w", id, as, snapshot.ErrExists)
	}
	changes, err := snapshot.Clone(ctx, bucket, id, as, filepath.Join(s.dataDir, "spaces"), scratchDir(s.dataDir),
		func(ctx context.Context) error { return s.shard.Prepare(ctx, as) },
		func(ctx context.Context, v *corev1.Service) (*corev1.Service, error) {
			return s.shard.ReserveService(ctx, as, v)
		})
	if err != nil {
		if !snapshot.Exists(filepath.Join(s.dataDir, "spaces", as)) {
			_ = os.Remove(kubeconfigPath(s.dataDir, as)) // it leads nowhere
		}
		return snapshot.Changes{}, err
	}
	return changes, s.shard.Add(as)
}
