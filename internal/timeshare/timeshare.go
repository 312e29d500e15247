// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package timeshare limits how long one of many users of a processor works on it. The API server's controllers and the
// syncer of a space use it: a tenant can give either work without an end. It does not interrupt work: what took longer than
// its share is followed by a pause.
package timeshare

import (
	"context"
	"time"

	"golang.org/x/time/rate"
)

// Share is how long one user may work. It is safe for concurrent use.
type Share struct {
	limiter *rate.Limiter // of microseconds
	atOnce  time.Duration
}

// New returns a share of perSecond in each second, for a user that has worked for atOnce.
func New(perSecond, atOnce time.Duration) *Share {
	return &Share{limiter: rate.NewLimiter(rate.Limit(perSecond.Microseconds()), int(atOnce.Microseconds())), atOnce: atOnce}
}

// Unlimited returns a share of all time.
func Unlimited() *Share { return &Share{limiter: rate.NewLimiter(rate.Inf, 0)} }

// Worked accounts for work of a duration, and returns when the next may begin. It returns an error if ctx ends before.
func (s *Share) Worked(ctx context.Context, d time.Duration) error {
	if s.limiter.Limit() != rate.Inf {
		d = min(d, s.atOnce)
	}
	return s.limiter.WaitN(ctx, int(d.Microseconds()))
}
