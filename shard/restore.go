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

// restoreRetry is when who asks for a space that is being restored asks again.
const restoreRetry = 5 * time.Second

// Hold has requests to a space told to try again, until it is released, also while
// it has no place here: its clients must not take a space that is being restored
// for one that is gone. Nobody else may hold it.
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

// restoring answers in place of a space that is being restored.
func restoring(name string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		unavailable(name, "is being restored", restoreRetry).write(w)
	})
}

// Prepare makes on the host what a space stands on that has no place yet, and
// whose store is being made elsewhere. It may be called again.
func (s *Shard) Prepare(ctx context.Context, name string) error {
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

// AdoptServices makes or finds the host objects of the services of a space that
// was prepared and does not run, and returns them with their addresses; see
// [syncer.Host.AdoptServices].
func (s *Shard) AdoptServices(ctx context.Context, name string, vs []*corev1.Service) ([]*corev1.Service, error) {
	settings := s.config.Settings(name)
	if sync := s.syncOf(&settings); !sync.On(resources.Services) {
		return make([]*corev1.Service, len(vs)), nil
	}
	return s.host.AdoptServices(ctx, translate.Space{Name: name}, vs)
}

// Snapshot writes a copy of the space's store, as it is at one moment, to path,
// where nothing is.
func (s *Space) Snapshot(ctx context.Context, path string) error { return s.plane.Snapshot(ctx, path) }
