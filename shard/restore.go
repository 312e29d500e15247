// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package shard

import (
	"context"
	"fmt"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/berth-dev/berth/syncer/resources"
	"github.com/berth-dev/berth/translate"
)

// restoreRetry is the Retry-After of answers to requests to a space that is being restored.
const restoreRetry = 5 * time.Second

// Hold makes requests to a space fail with the advice to try again, until release is called, even while the space has
// no place here. Without it, clients would conclude that a space that is being restored does not exist. Only one caller
// may hold a space at a time.
func (s *Shard) Hold(name string) (release func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held[name] = true
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.held, name)
	}
}

// restoring returns the handler of a space that is being restored.
func restoring(name string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		unavailable(name, "is being restored", restoreRetry).write(w)
	})
}

// Prepare creates on the host what a space needs that has no place here, while its store is created elsewhere. It may
// be called again.
func (s *Shard) Prepare(ctx context.Context, name string) error {
	if err := s.host.Own(ctx, name); err != nil {
		return fmt.Errorf("prepare space %s: %w", name, err)
	}
	if s.config.Prepare != nil {
		if err := s.config.Prepare(ctx, name); err != nil {
			return fmt.Errorf("prepare space %s: %w", name, err)
		}
	}
	if _, err := s.host.ReserveAPI(ctx, translate.Space{Name: name}); err != nil {
		return fmt.Errorf("prepare space %s: %w", name, err)
	}
	return nil
}

// AdoptServices finds or creates the host objects of the services of a space that is prepared and does not run, and
// returns the services with their addresses; see [syncer.Host.AdoptServices].
func (s *Shard) AdoptServices(ctx context.Context, name string, vs []*corev1.Service) ([]*corev1.Service, error) {
	settings := s.config.Settings(name)
	if sync := s.syncOf(&settings); !sync.On(resources.Services) {
		return make([]*corev1.Service, len(vs)), nil
	}
	return s.host.AdoptServices(ctx, translate.Space{Name: name}, vs)
}

// Snapshot writes a consistent copy of the space's store to path, where no file may exist.
func (s *Space) Snapshot(ctx context.Context, path string) error { return s.plane.Snapshot(ctx, path) }
