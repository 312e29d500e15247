// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package shard

import (
	"context"
	"time"
)

// nextTimer is the earliest time at which the space wants to act by itself: its
// controllers, its syncer, or what expires in its store. Zero is never.
func (s *Space) nextTimer(ctx context.Context) (earliest time.Time, err error) {
	if !s.syncer.Idle() {
		return time.Time{}, errBusy
	}
	consider := func(t time.Time, ok bool) {
		if ok && (earliest.IsZero() || t.Before(earliest)) {
			earliest = t
		}
	}
	if q, ok := any(s.plane).(interface {
		NextTimer(context.Context) (time.Time, bool, error)
	}); ok {
		t, some, err := q.NextTimer(ctx)
		if err != nil {
			return time.Time{}, err
		}
		consider(t, some)
	}
	t, some, err := s.plane.NextExpiry(ctx)
	if err != nil {
		return time.Time{}, err
	}
	consider(t, some)
	consider(s.syncer.NextTimer())
	return earliest, nil
}
