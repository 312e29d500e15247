// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package shard

import (
	"context"
	"sync/atomic"

	"golang.org/x/sync/singleflight"

	"github.com/berth-dev/berth/syncer/declaration"
)

// withdrawOnce returns the function that the syncer of a space calls before Services lead out. It is for one start of the space: the syncs that
// a space runs with stay the same until it stops, so objects of other syncs don't come back after they were deleted. Calls at the same time
// share one request, and after the first success there are none. It is safe for concurrent use.
func (s *Shard) withdrawOnce(space string, runs []*declaration.Declaration) func(context.Context) error {
	names := make([]string, len(runs))
	for i, d := range runs {
		names[i] = d.Name
	}
	var asked singleflight.Group
	var gone atomic.Bool
	return func(ctx context.Context) error {
		if gone.Load() {
			return nil
		}
		_, err, _ := asked.Do("", func() (any, error) {
			err := s.config.Withdraw(ctx, space, names)
			gone.Store(err == nil)
			return nil, err
		})
		return err
	}
}
