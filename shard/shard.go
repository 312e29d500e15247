// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package shard

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"path/filepath"
	"slices"
	"sync"

	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/berth-dev/berth/syncer"
)

var (
	// ErrRunning says that a space was started twice. It counts as running
	// until its stop has ended.
	ErrRunning = errors.New("space is already running")
	// ErrStopped says that the shard takes no more spaces.
	ErrStopped = errors.New("shard is stopped")
)

// Config says where a shard's spaces live.
type Config struct {
	// Dir holds a directory for each space, named for it.
	Dir string
	// Host reaches the shared cluster; see [syncer.NewHost] for the rights needed.
	Host *rest.Config
	// Endpoint is the URL of a space's API, for its kubeconfigs.
	Endpoint func(space string) string
	// ServingCA is the PEM bundle that verifies the endpoints.
	ServingCA []byte
	Logger    klog.Logger
}

// Shard runs spaces. It is safe for concurrent use.
type Shard struct {
	config       Config
	host         *syncer.Host
	serviceRange string

	mu      sync.RWMutex
	places  map[string]*place
	stopped bool
}

// place is a space's in the shard, from the beginning of its start to the end
// of its stop: while it is taken, nobody else opens the space's store.
type place struct {
	abort   context.CancelFunc // ends the start
	started chan struct{}      // closed when the start has ended, well or not
	space   *Space             // nil until it has started well
}

// Start connects to the host and returns when its watches have caught up. ctx
// bounds the start only.
func Start(ctx context.Context, c Config) (*Shard, error) {
	host, err := syncer.NewHost(c.Host)
	if err != nil {
		return nil, fmt.Errorf("start shard: %w", err)
	}
	cidr, err := host.ServiceRange(ctx)
	if err != nil {
		return nil, fmt.Errorf("start shard: %w", err)
	}
	if err := host.Start(ctx); err != nil {
		return nil, fmt.Errorf("start shard: %w", err)
	}
	return &Shard{config: c, host: host, serviceRange: cidr, places: map[string]*place{}}, nil
}

// StartSpace starts a space whose walls stand on the host, and returns when it
// serves and syncs. ctx bounds the start only. On error nothing of it runs.
func (s *Shard) StartSpace(ctx context.Context, name string) (*Space, error) {
	ctx, abort := context.WithCancel(ctx)
	defer abort()
	p := &place{abort: abort, started: make(chan struct{})}
	if err := s.take(name, p); err != nil {
		return nil, fmt.Errorf("start space %s: %w", name, err)
	}
	space, err := s.startSpace(ctx, name)

	s.mu.Lock()
	defer s.mu.Unlock()
	defer close(p.started)
	if err != nil {
		delete(s.places, name)
		return nil, fmt.Errorf("start space %s: %w", name, err)
	}
	p.space = space
	return space, nil
}

func (s *Shard) take(name string, p *place) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return ErrStopped
	}
	if s.places[name] != nil {
		return ErrRunning
	}
	s.places[name] = p
	return nil
}

// Space is a running space, nil if it does not run here.
func (s *Shard) Space(name string) *Space {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if p := s.places[name]; p != nil {
		return p.space
	}
	return nil
}

// Names of the spaces that run, start or stop here, sorted.
func (s *Shard) Names() []string {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return slices.Sorted(maps.Keys(s.places))
}

// Handler serves a space's API, nil if it does not run here.
func (s *Shard) Handler(name string) http.Handler {
	if space := s.Space(name); space != nil {
		return space.plane.Handler()
	}
	return nil
}

// StopSpace stops a space, or ends its start, and waits for it; its host objects
// run on. When ctx ends first it returns an error, and the stop goes on.
func (s *Shard) StopSpace(ctx context.Context, name string) error {
	s.mu.RLock()
	p := s.places[name]
	s.mu.RUnlock()
	if p == nil {
		return nil
	}
	p.abort()
	select {
	case <-p.started:
	case <-ctx.Done():
		return fmt.Errorf("stop space %s in its start: %w", name, context.Cause(ctx))
	}
	if p.space == nil {
		return nil
	}
	p.space.requestStop()
	select {
	case <-p.space.done:
	case <-ctx.Done():
		return fmt.Errorf("stop space %s: %w", name, context.Cause(ctx))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.places[name] == p {
		delete(s.places, name)
	}
	return p.space.stopErr
}

// Stop stops all spaces, those that are starting too, then the watches on the
// host. No space can be started afterwards.
func (s *Shard) Stop(ctx context.Context) error {
	s.mu.Lock()
	s.stopped = true
	s.mu.Unlock()
	var wg sync.WaitGroup
	names := s.Names()
	errs := make([]error, len(names))
	for i, name := range names {
		wg.Go(func() { errs[i] = s.StopSpace(ctx, name) })
	}
	wg.Wait()
	s.host.Stop()
	return errors.Join(errs...)
}

func (s *Shard) dir(space string) string { return filepath.Join(s.config.Dir, space) }
