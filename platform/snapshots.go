// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package platform

import (
	"context"
	"fmt"
	"net/http"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/control"
	"github.com/berth-dev/berth/shard"
	"github.com/berth-dev/berth/snapshot"
)

// snapshots takes and restores snapshots of a running berth's spaces.
type snapshots struct {
	shard   restorable
	dataDir string
	keeper  *snapshot.Keeper
	logger  klog.Logger
	// elsewhere tells whether a space runs in a process of its own.
	elsewhere func(space string) bool
	changes   *changes
	// ensure creates the object of a space that was restored, unless it is there.
	ensure func(ctx context.Context, space string) error

	restoring sync.Mutex // one at a time
}

// startSnapshots lets other commands take and restore snapshots, and takes those
// that are scheduled.
func (p *Platform) startSnapshots(context.Context) (err error) {
	o := p.config.Snapshots
	config := snapshot.Config{
		Dir: spacesDir(p.config.DataDir), Scratch: scratchDir(p.config.DataDir), Spaces: shardSpaces{p.shard},
		Every: o.Every, Keep: o.Keep, Observe: p.metrics.Snapshot, Logger: p.logger,
	}
	if o.To != "" {
		if config.Bucket, err = snapshot.Open(o.To); err != nil {
			return err
		}
	}
	s := &snapshots{
		changes: &p.changes, shard: p.shard, dataDir: p.config.DataDir, logger: p.logger, ensure: p.ensure,
		elsewhere: func(space string) bool { return p.processes.get(space) != nil },
	}
	if s.keeper, err = snapshot.NewKeeper(config); err != nil {
		return err
	}
	p.snapshots = s
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
	p.config.Progress("Each space that has changed goes to %s every %s; the newest %d are kept", config.Bucket, o.Every, o.Keep)
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

// Wake implements [snapshot.Spaces]. What may end the process again is not worth
// a snapshot.
func (s shardSpaces) Wake(ctx context.Context, name string) error {
	if err := s.HeldBack(name); err != nil {
		return fmt.Errorf("wake space %s: %w", name, err)
	}
	return s.Shard.Wake(ctx, name)
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
			return nil, apierrors.NewNotFound(v1alpha1.Resource("spaces"), name)
		}
		return s.keeper.Take(r.Context(), name, bucket)
	}))
	mux.Handle("POST /snapshots/restore", control.Answer(func(r *http.Request) (any, error) {
		bucket, err := s.bucket(r, "from")
		if err != nil {
			return nil, err
		}
		query := r.URL.Query()
		return s.restore(r.Context(), bucket, query.Get("id"), query.Get("as"), query.Has("replace"))
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
