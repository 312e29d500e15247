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

// ErrRunning says that a space was started twice.
var ErrRunning = errors.New("space is already running")

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

	mu     sync.RWMutex
	spaces map[string]*Space // nil while one starts
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
	return &Shard{config: c, host: host, serviceRange: cidr, spaces: map[string]*Space{}}, nil
}

// StartSpace starts a space whose walls stand on the host, and returns when it
// serves and syncs.
func (s *Shard) StartSpace(ctx context.Context, name string) (*Space, error) {
	s.mu.Lock()
	if _, running := s.spaces[name]; running {
		s.mu.Unlock()
		return nil, fmt.Errorf("start space %s: %w", name, ErrRunning)
	}
	s.spaces[name] = nil
	s.mu.Unlock()

	space, err := s.startSpace(ctx, name)

	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		delete(s.spaces, name)
		return nil, fmt.Errorf("start space %s: %w", name, err)
	}
	s.spaces[name] = space
	return space, nil
}

// Space is a running space, nil if it does not run here.
func (s *Shard) Space(name string) *Space {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.spaces[name]
}

// Names of the spaces that run here, sorted.
func (s *Shard) Names() []string {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return slices.Sorted(maps.Keys(s.spaces))
}

// Handler serves a space's API, nil if it does not run here.
func (s *Shard) Handler(name string) http.Handler {
	if space := s.Space(name); space != nil {
		return space.plane.Handler()
	}
	return nil
}

// StopSpace stops a space and waits for it; its host objects run on.
func (s *Shard) StopSpace(ctx context.Context, name string) error {
	s.mu.Lock()
	space := s.spaces[name]
	if space != nil {
		delete(s.spaces, name)
	}
	s.mu.Unlock()
	if space == nil {
		return nil
	}
	return space.stop(ctx)
}

// Stop stops all spaces, then the watches on the host.
func (s *Shard) Stop(ctx context.Context) error {
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
