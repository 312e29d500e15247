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
	// One in userReserve of the requests of a tenant, and of a space, is never for a user who has all others.
	userReserve = 8
	// One in visitorsPart of what the clients of a space may send is what users of other tenants may send together, besides.
	visitorsPart = 4
)

// party is a space or a tenant, of whose requests only so many may be in flight.
type party struct {
	requests
	users    map[uint8]*requests
	visitors requests // of users of other tenants, whom their own tenants pay for
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
	f := flow{tenant: ofTenant + tenant, user: l.userFlow(user)}
	if tenant == "" {
		f.tenant = ofSpace + space
	}
	return f
}

// userFlow returns the number of a user, of 256. Two users have the same number once in 256 times, and then count as one.
func (l *Limiter) userFlow(user string) uint8 {
	return uint8(maphash.String(l.seed, user)) //nolint:gosec // the hash's lowest byte is meant
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
	var parties []*party
	var allowances []allowance
	add := func(p *party, limit func(bounds.Quantity) int64, of bounds.Owner) {
		parties = append(parties, p)
		allowances = append(allowances, allowance{p.user(who.user), partOf(limit, userReserve-1, userReserve), bounds.OfUser}, allowance{&p.requests, limit, of})
	}
	if hasTenant {
		add(l.party(who.tenant, now), tenant.Of, bounds.OfTenant)
	}
	if !hasTenant || l.config.TenantOf(space) == name {
		add(l.party(ofSpace+space, now), own.Of, "")
	}
	return l.count(parties, allowances, k.quantity, now)
}

// beginVisit counts a request of a user of another tenant toward what the space has for all of them, until end is called, or rejects it.
func (l *Limiter) beginVisit(space string, k class) (end func(), err error) {
	now, own := time.Now(), l.config.Limits(space)
	l.mu.Lock()
	defer l.mu.Unlock()
	p := l.party(ofSpace+space, now)
	return l.count([]*party{p}, []allowance{{&p.visitors, partOf(own.Of, 1, visitorsPart), bounds.OfVisitors}}, k.quantity, now)
}

// partOf returns a part of limits, which is at least 1.
func partOf(limit func(bounds.Quantity) int64, part, of int64) func(bounds.Quantity) int64 {
	return func(q bounds.Quantity) int64 { return max(1, (limit(q)*part+of-1)/of) }
}

// count counts a request until end is called, or rejects it. The limiter must be locked.
func (l *Limiter) count(parties []*party, allowances []allowance, q bounds.Quantity, now time.Time) (end func(), err error) {
	if err := take(allowances, q, now); err != nil {
		return nil, err
	}
	for _, p := range parties {
		p.underWay++
	}
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		for _, a := range allowances {
			a.inFlight[q-bounds.RequestsReading]--
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

// take counts a request toward all allowances, or toward none and returns an error: what one party is refused takes nothing from another.
func take(allowances []allowance, q bounds.Quantity, now time.Time) error {
	for _, a := range allowances {
		if used, limit := a.inFlight[q-bounds.RequestsReading], a.limit(q); used >= limit {
			a.refused[q-bounds.RequestsReading]++
			return &bounds.ExceededError{Quantity: q, Asked: 1, Used: used, Limit: limit, Of: a.of}
		}
		perSecond := a.limit(bounds.RequestRate)
		if a.rate == nil {
			a.rate = rate.NewLimiter(rate.Limit(perSecond), int(2*perSecond))
		}
		if a.rate.Limit() != rate.Limit(perSecond) {
			a.rate.SetLimitAt(now, rate.Limit(perSecond))
			a.rate.SetBurstAt(now, int(2*perSecond))
		}
		if a.rate.TokensAt(now) < 1 {
			a.refused[bounds.RequestRate-bounds.RequestsReading]++
			return &bounds.ExceededError{Quantity: bounds.RequestRate, Asked: 1, Used: perSecond, Limit: perSecond, Of: a.of}
		}
	}
	for _, a := range allowances {
		a.rate.AllowN(now, 1)
		a.inFlight[q-bounds.RequestsReading]++
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
