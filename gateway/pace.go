// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"math"
	"runtime/metrics"
	"sync"
	"time"
)

const (
	// paceEvery is the minimum time between two adjustments of the pace.
	paceEvery = 20 * time.Millisecond
	// paceDelay is the longest scheduling delay, at the 99th percentile, of a process that is not too busy.
	paceDelay = time.Millisecond
	// paceActive is how long after its last request a tenant counts as using the process.
	paceActive = 5 * time.Second
	// paceCredit is how much work a tenant may have executed at once, however small its share is.
	paceCredit = 100 * time.Millisecond
	// paceLeast is the minimum fraction of time in which a tenant may have something executing, however many tenants
	// there are.
	paceLeast = 0.1
	// handshakeCredit and handshakeLeast are the same for the handshakes of one client.
	handshakeCredit, handshakeLeast = 10 * time.Millisecond, 0.25
	// handshakeMost is the most that a turn of a handshake is charged. The handshake itself takes less; in a busy
	// process, the measured time is mostly waiting for a processor. Without this limit, many clients that connect at
	// once would time out.
	handshakeMost = 2 * time.Millisecond
	// paceWait is the maximum time that a tenant waits between two requests.
	paceWait = 5 * time.Second
	// paceEvents is the minimum number of scheduling delays from which the percentile is computed.
	paceEvents = 100
	// paceSlower and paceFaster are the factors by which the pace changes in paceEvery.
	paceSlower, paceFaster = 0.2, 1.008
)

// pace is how much one tenant may have executing at once while other tenants use the process, too. While goroutines wait
// for a processor, it falls, down to an equal share for each tenant; after that, it slowly rises. A tenant that is alone
// may use everything.
//
// The pace falls to 20% in 20 ms and rises by 0.8%.
// So a tenant that makes goroutines wait for 20 ms every 4 s keeps it low, though not below an equal share.
//
// It is safe for concurrent use.
type pace struct {
	most       float64 // units
	processors float64
	delays     func() delays
	credit     time.Duration
	// handshakes means that this pace is for handshakes of clients that have not authenticated yet. While goroutines
	// wait, each client has handshakeLeast, even if it is the only one, because it slows down tenants.
	handshakes bool

	mu sync.Mutex
	// units is how many units a tenant may have at once. Below 1, it is the fraction of time in which it may have one.
	units    float64
	alone    bool
	adjusted time.Time
	last     delays
	tenants  map[string]*paced
}

// paced is a tenant that uses the process.
type paced struct {
	asked time.Time     // its last request
	work  time.Duration // charged work that is not yet paid for by time
	at    time.Time     // the time at which work was computed
	// units is how many units the tenant may have at once, however many the pace allows. It rises while the tenant wants more, and falls
	// while it does not, so that one that begins to flood does not have everything until the pace has fallen.
	units  float64
	wanted bool // the tenant had to wait for more since its units were adjusted
}

func newPace(most, processors int) *pace {
	return &pace{
		most: float64(most), units: float64(most), alone: true, processors: float64(processors), delays: schedulerDelays,
		credit: paceCredit, tenants: map[string]*paced{},
	}
}

// newHandshakePace returns a pace for clients instead of tenants.
func newHandshakePace(most, processors int) *pace {
	p := newPace(most, processors)
	p.handshakes, p.credit = true, handshakeCredit
	return p
}

// share returns how many units a tenant may have at once, how long it has to wait for any, and whether its work must be
// charged.
func (p *pace) share(tenant string) (units int, wait time.Duration, charged bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.ask(tenant)
	switch {
	case p.alone:
		return int(p.units), 0, false
	case p.units >= 1:
		return int(min(p.units, s.units)), 0, false
	}
	if debt := s.work - p.credit; debt > 0 {
		wait = min(paceWait, max(time.Millisecond, time.Duration(float64(debt)/p.units)))
	}
	return 1, wait, true
}

// ask returns the current state of a tenant that wants something. The pace must be locked.
func (p *pace) ask(tenant string) *paced {
	now := time.Now()
	s := p.of(tenant, now)
	s.asked = now
	p.adjust(now)
	return s
}

// charge adds work that was executed for a tenant.
func (p *pace) charge(tenant string, d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.add(tenant, d)
}

// chargeIfSlow adds work that no turn has measured, while work must be charged.
func (p *pace) chargeIfSlow(tenant string, d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.units < 1 {
		p.add(tenant, d)
	}
}

// add adds work of a tenant. The pace must be locked.
func (p *pace) add(tenant string, d time.Duration) {
	s := p.of(tenant, time.Now())
	if p.handshakes {
		d = min(d, handshakeMost)
	}
	s.work = min(s.work+d, p.credit+time.Duration(float64(paceWait)*min(1, p.units)))
}

// rest charges work that is under way, if work is charged, and returns how long it should rest.
func (p *pace) rest(tenant string, worked time.Duration) (wait time.Duration, charged bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.ask(tenant)
	if p.alone || p.units >= 1 {
		return 0, false
	}
	p.add(tenant, worked)
	return min(restMost, time.Duration(float64(max(0, s.work-p.credit))/p.units)), true
}

// of returns the current state of a tenant. The pace must be locked.
func (p *pace) of(tenant string, now time.Time) *paced {
	s := p.tenants[tenant]
	if s == nil {
		s = &paced{at: now, asked: now, units: p.first()}
		p.tenants[tenant] = s
	}
	s.work = max(0, s.work-time.Duration(float64(now.Sub(s.at))*min(1, p.units)))
	s.at = now
	return s
}

// adjust computes the pace. The pace must be locked.
func (p *pace) adjust(now time.Time) {
	since := now.Sub(p.adjusted)
	if since < paceEvery {
		return
	}
	p.adjusted = now
	for name, s := range p.tenants {
		if now.Sub(s.asked) > paceActive {
			delete(p.tenants, name)
		}
	}
	before := p.last
	p.last = p.delays()
	least := max(paceLeast, p.processors/float64(len(p.tenants)))
	if p.handshakes {
		least = handshakeLeast
	}
	switch {
	case len(p.tenants) < 2 && !p.handshakes:
		p.units, p.alone = p.most, true
	case p.alone || since > paceActive: // try whether others can use more
		p.units, p.alone = p.first(), false
	case p.last.since(before) > paceDelay:
		// Units that no tenant has yet don't make goroutines wait.
		p.units = max(min(p.units, p.largest())*paceSlower, min(p.most, least))
	default:
		p.units = min(p.most, p.units*math.Pow(paceFaster, float64(since)/float64(paceEvery)))
	}
	for _, s := range p.tenants {
		s.adjust(p, since)
	}
}

// adjust computes how many units a tenant may have. The pace must be locked.
func (s *paced) adjust(p *pace, since time.Duration) {
	faster := math.Pow(paceFaster, float64(min(since, paceActive))/float64(paceEvery))
	switch {
	case p.alone:
		s.units = p.first()
	case s.wanted && p.units >= 1:
		s.units = min(p.most, s.units*faster)
	case !s.wanted:
		s.units = max(p.first(), s.units/faster)
	}
	s.wanted = false
}

// largest returns the most units that a tenant may have.
func (p *pace) largest() (units float64) {
	for _, s := range p.tenants {
		units = max(units, s.units)
	}
	return units
}

// first is how many units a tenant may have at first.
func (p *pace) first() float64 { return min(p.most, 2*p.processors) }

// want notes that a tenant has to wait for more than it may have.
func (p *pace) want(tenant string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.of(tenant, time.Now()).wanted = true
}

// busy reports whether tenants may have less than in a process that is not busy.
func (p *pace) busy(tenant string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ask(tenant)
	return p.units < p.most
}

// delays is the histogram of scheduling delays since the process began.
type delays struct {
	counts  []uint64
	seconds []float64 // lower bounds of the buckets
}

func schedulerDelays() delays {
	sample := []metrics.Sample{{Name: "/sched/latencies:seconds"}}
	metrics.Read(sample)
	if sample[0].Value.Kind() != metrics.KindFloat64Histogram {
		return delays{}
	}
	h := sample[0].Value.Float64Histogram()
	return delays{counts: h.Counts, seconds: h.Buckets}
}

// since returns the 99th percentile of the delays since an earlier histogram.
func (d delays) since(before delays) time.Duration {
	counts := make([]uint64, len(d.counts))
	var total uint64
	for i, n := range d.counts {
		if i < len(before.counts) {
			n -= before.counts[i]
		}
		counts[i] = n
		total += n
	}
	for i, seen := len(counts)-1, uint64(0); i >= 0; i-- {
		if seen += counts[i]; seen > max(total, paceEvents)/100 {
			return time.Duration(max(0, d.seconds[i]) * float64(time.Second))
		}
	}
	return 0
}
