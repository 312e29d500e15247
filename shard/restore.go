// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package shard

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/berth-dev/berth/translate"
)

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

// InheritService makes the host object of a service of a space that was
// prepared, and returns it with its addresses; see [syncer.Host.InheritService].
func (s *Shard) InheritService(ctx context.Context, name string, v *corev1.Service) (*corev1.Service, error) {
	return s.host.InheritService(ctx, translate.Space{Name: name}, v)
}

// Snapshot writes a copy of the space's store, as it is at one moment, to path,
// where nothing is.
func (s *Space) Snapshot(ctx context.Context, path string) error { return s.plane.Snapshot(ctx, path) }
