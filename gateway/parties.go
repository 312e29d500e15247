// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"cmp"
	"hash/maphash"
	"net/http"
	"strings"
	"time"

	"golang.org/x/time/rate"

	"github.com/berth-dev/berth/bounds"
	"github.com/berth-dev/berth/identity"
)

const (
	// If there are many parties, those without a request for idleParty are forgotten.
	idleParty   = 10 * time.Second
	firstForget = 64
	// userFlows is how many users of a tenant take turns. Of more, some count as one.
	userFlows = 64
	// One in userReserve of a tenant's requests is never for a user who has all others.
	userReserve = 8
)

// party is a space or a tenant, of whose requests only so many may be in flight.
type party struct {
	requests
	users    map[uint8]*requests // those of each user whom the party pays for
	underWay int
	last     time.Time
}

// requests counts those in flight, and what was refused.
type requests struct {
	inFlight [requestQuantities]int64
	refused  [requestQuantities]uint64
	rate     *rate.Limiter // nil until the first request
}

// requestQuantities is the number of quantities of requests, which follow each other in package bounds. The last is their rate.
const requestQuantities = bounds.RequestRate - bounds.RequestsReading + 1

// allowance is what a request counts toward, and its limit.
type allowance struct {
	*requests
	limit func(bounds.Quantity) int64
	of    bounds.Owner
}

// flowOf returns whose turn a request takes: that of the client's tenant, which is that of the space, unless the client is known as a
// user of another.
func (l *Limiter) flowOf(space, user string, r *http.Request) flow {
	tenant := l.config.TenantOf(space)
	if who := identity.From(r.Context()); who != nil {
		tenant = cmp.Or(who.Tenant, tenant)
	}
	f := flow{tenant: ofTenant + tenant, user: uint8(maphash.String(l.seed, user) % userFlows)} //nolint:gosec // less than userFlows
	if tenant == "" {
		f.tenant = ofSpace + space
	}
	return f
}

// Prefixes of the names of parties.
const ofTenant, ofSpace = "tenant ", "space "

// begin counts a request until end is called, or rejects it.
func (l *Limiter) begin(space string, who flow, k class) (end func(), err error) {
	now := time.Now()
	own, tenant := l.config.Limits(space), bounds.Limits(nil)
	name, hasTenant := strings.CutPrefix(who.tenant, ofTenant)
	if hasTenant {
		if tenant = l.config.TenantLimits(name); tenant == nil {
			tenant = l.usual
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	payer := l.party(who.tenant, now)
	parties, limit, of := []*party{payer}, own.Of, bounds.Owner("")
	var allowances []allowance
	if hasTenant {
		limit, of = tenant.Of, bounds.OfTenant
		if l.config.TenantOf(space) == name {
			parties = append(parties, l.party(ofSpace+space, now))
			allowances = append(allowances, allowance{&parties[1].requests, own.Of, ""})
		}
	}
	// The user comes first: what it is refused takes nothing of the others' rate.
	allowances = append([]allowance{
		{payer.user(who.user), func(q bounds.Quantity) int64 { return limit(q) - limit(q)/userReserve }, bounds.OfUser}, {&payer.requests, limit, of},
	}, allowances...)
	if err := take(allowances, k.quantity, now); err != nil {
		return nil, err
	}
	for _, p := range parties {
		p.underWay++
	}
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		for _, s := range allowances {
			s.inFlight[k.quantity-bounds.RequestsReading]--
		}
		for _, p := range parties {
			p.underWay--
		}
	}, nil
}

// party returns the party of a name. The limiter must be locked.
func (l *Limiter) party(name string, now time.Time) *party {
	p := l.parties[name]
	if p == nil {
		l.forget(now)
		p = &party{users: map[uint8]*requests{}}
		l.parties[name] = p
	}
	p.last = now
	return p
}

func (p *party) user(user uint8) *requests {
	r := p.users[user]
	if r == nil {
		r = &requests{}
		p.users[user] = r
	}
	return r
}

// take counts a request toward all allowances, or returns an error. Of what is refused, only the rates count that come before the one that
// is exceeded.
func take(allowances []allowance, q bounds.Quantity, now time.Time) error {
	for _, s := range allowances {
		if used, limit := s.inFlight[q-bounds.RequestsReading], s.limit(q); used >= limit {
			s.refused[q-bounds.RequestsReading]++
			return &bounds.ExceededError{Quantity: q, Asked: 1, Used: used, Limit: limit, Of: s.of}
		}
	}
	for _, s := range allowances {
		perSecond := s.limit(bounds.RequestRate)
		if s.rate == nil {
			s.rate = rate.NewLimiter(rate.Limit(perSecond), int(2*perSecond))
		}
		if s.rate.Limit() != rate.Limit(perSecond) {
			s.rate.SetLimitAt(now, rate.Limit(perSecond))
			s.rate.SetBurstAt(now, int(2*perSecond))
		}
		if !s.rate.AllowN(now, 1) {
			s.refused[bounds.RequestRate-bounds.RequestsReading]++
			return &bounds.ExceededError{Quantity: bounds.RequestRate, Asked: 1, Used: perSecond, Limit: perSecond, Of: s.of}
		}
	}
	for _, s := range allowances {
		s.inFlight[q-bounds.RequestsReading]++
	}
	return nil
}

// forget removes parties without requests. The limiter must be locked.
func (l *Limiter) forget(now time.Time) {
	if len(l.parties) < l.forgetAt {
		return
	}
	for name, p := range l.parties {
		if p.underWay == 0 && now.Sub(p.last) > idleParty {
			delete(l.parties, name)
		}
	}
	l.forgetAt = max(firstForget, 2*len(l.parties))
}

// Count sets the current values of the quantities that the limiter counts of a space.
func (l *Limiter) Count(space string, usage []bounds.Usage) {
	limits := l.config.Limits(space)
	l.mu.Lock()
	defer l.mu.Unlock()
	p := l.parties[ofSpace+space]
	if p == nil {
		return
	}
	for i := range usage {
		if of := usage[i].Quantity - bounds.RequestsReading; of >= 0 && of < requestQuantities {
			usage[i] = bounds.Usage{Quantity: usage[i].Quantity, Used: p.inFlight[of], Limit: limits.Of(usage[i].Quantity), Refused: p.refused[of]}
		}
	}
}
