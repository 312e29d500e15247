// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package dns

import (
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/utils/clock"
	"k8s.io/utils/lru"
)

// tenant is what the resolver remembers of a space that asks: what it takes, and
// what it was told.
type tenant struct {
	queries    flowcontrol.PassiveRateLimiter // a second
	inFlight   places
	forwards   flowcontrol.PassiveRateLimiter
	forwarding places
	cache      *lru.Cache // of cacheKey to *cached
	last       time.Time  // of its queries; guarded by tenants.mu
}

// tenants are the spaces that ask, until they have not for a while.
type tenants struct {
	limits Limits
	clock  clock.Clock

	mu    sync.Mutex
	all   map[string]*tenant
	swept time.Time
}

func newTenants(limits Limits, clock clock.Clock) *tenants {
	return &tenants{limits: limits, clock: clock, all: map[string]*tenant{}, swept: clock.Now()}
}

// of is the space's. Whoever comes sweeps away what nobody came for: there is
// nothing to do while no one asks.
func (s *tenants) of(space string) *tenant {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.clock.Now()
	if now.Sub(s.swept) > tenantIdle {
		s.swept = now
		for name, t := range s.all {
			if now.Sub(t.last) > tenantIdle && t.inFlight.taken.Load() == 0 {
				delete(s.all, name)
			}
		}
	}
	t := s.all[space]
	if t == nil {
		t = &tenant{
			queries:    s.rate(s.limits.Queries),
			inFlight:   places{limit: int64(s.limits.InFlight)},
			forwards:   s.rate(s.limits.Forwards),
			forwarding: places{limit: int64(s.limits.Forwarding)},
			cache:      lru.New(s.limits.Cached),
		}
		s.all[space] = t
	}
	t.last = now
	return t
}

func (s *tenants) rate(perSecond int) flowcontrol.PassiveRateLimiter {
	return flowcontrol.NewTokenBucketPassiveRateLimiterWithClock(float32(perSecond), 2*perSecond, s.clock)
}

// places are as many as may be taken at once.
type places struct {
	limit int64
	taken atomic.Int64
}

func (p *places) take() bool {
	if p.taken.Add(1) > p.limit {
		p.taken.Add(-1)
		return false
	}
	return true
}

func (p *places) give() { p.taken.Add(-1) }
