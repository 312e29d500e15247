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
	// paceEvery is how often at most the pace is adjusted.
	paceEvery = 20 * time.Millisecond
	// paceDelay is how long at most one goroutine in a hundred waits for a processor in a process that is not too busy.
	paceDelay = time.Millisecond
	// paceActive is how long a space counts as one that uses the process after its last request.
	paceActive = 5 * time.Second
	// paceCredit is how much work a space may have done at once, however little it may have in the long run.
	paceCredit = 100 * time.Millisecond
	// paceLeast is the least part of the time in which a space may have something executed, however many there are.
	paceLeast = 0.1
	// handshakeCredit and handshakeLeast are the same for the handshakes of one client.
	handshakeCredit, handshakeLeast = 10 * time.Millisecond, 0.25
	// handshakeMost is how much a turn of a handshake is charged at most: it takes less, and waits for a processor the longer the
	// busier the process is. Clients that connect all at once would not get through before they give up.
	handshakeMost = 2 * time.Millisecond
	// paceWait is how long at most a space waits between two requests.
	paceWait = 5 * time.Second
	// paceEvents is how many goroutines have to have waited for a processor before one that waited for long says anything.
	paceEvents = 100
	// paceSlower and paceFaster are by what the pace changes in paceEvery.
	paceSlower, paceFaster = 0.4, 1.008
)

// pace is how much one space may have executed at once while others use the process, too. While goroutines wait for a processor
// it becomes less, down to an equal share for each space; afterwards it slowly becomes more. A space that is alone may have all.
//
// Shares are those of spaces: a tenant with many spaces has as many. Because the pace falls to 40 % in 20 ms and rises by 0.8 %,
// whoever has goroutines wait for 50 ms of each second keeps it low, though not below an equal share.
//
// It is safe for concurrent use.
type pace struct {
	most       float64 // units
	processors float64
	delays     func() delays
	credit     time.Duration
	// handshakes are those of clients that have not authenticated yet. Each has handshakeLeast while goroutines wait, also
	// the only one: what it disturbs are the spaces.
	handshakes bool

	mu sync.Mutex
	// units are how many a space may have at once. Below 1, they are the part of the time in which it may have one.
	units    float64
	alone    bool
	adjusted time.Time
	last     delays
	spaces   map[string]*paced
}

// paced is a space that uses the process.
type paced struct {
	asked time.Time     // its last request
	work  time.Duration // charged, and not made up for by time
	at    time.Time     // when that was so
}

func newPace(most, processors int) *pace {
	return &pace{
		most: float64(most), units: float64(most), alone: true, processors: float64(processors), delays: schedulerDelays,
		credit: paceCredit, spaces: map[string]*paced{},
	}
}

// newHandshakePace is for clients instead of spaces.
func newHandshakePace(most, processors int) *pace {
	p := newPace(most, processors)
	p.handshakes, p.credit = true, handshakeCredit
	return p
}

// share is how many units a space may have at once, how long it has to wait until it may have any, and whether what it gets is
// to be charged.
func (p *pace) share(space string) (units int, wait time.Duration, charged bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	s := p.of(space, now)
	s.asked = now
	p.adjust(now)
	if p.units >= 1 {
		return int(p.units), 0, false
	}
	if debt := s.work - p.credit; debt > 0 {
		wait = min(paceWait, max(time.Millisecond, time.Duration(float64(debt)/p.units)))
	}
	return 1, wait, true
}

// charge counts what was executed for a space.
func (p *pace) charge(space string, d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.of(space, time.Now())
	if p.handshakes {
		d = min(d, handshakeMost)
	}
	s.work = min(s.work+d, p.credit+time.Duration(float64(paceWait)*min(1, p.units)))
}

// of returns a space as it is now. The pace is locked.
func (p *pace) of(space string, now time.Time) *paced {
	s := p.spaces[space]
	if s == nil {
		s = &paced{at: now, asked: now}
		p.spaces[space] = s
	}
	s.work = max(0, s.work-time.Duration(float64(now.Sub(s.at))*min(1, p.units)))
	s.at = now
	return s
}

// adjust sets the pace anew. The pace is locked.
func (p *pace) adjust(now time.Time) {
	since := now.Sub(p.adjusted)
	if since < paceEvery {
		return
	}
	p.adjusted = now
	for name, s := range p.spaces {
		if now.Sub(s.asked) > paceActive {
			delete(p.spaces, name)
		}
	}
	before := p.last
	p.last = p.delays()
	least := max(paceLeast, p.processors/float64(len(p.spaces)))
	if p.handshakes {
		least = handshakeLeast
	}
	switch {
	case len(p.spaces) < 2 && !p.handshakes:
		p.units, p.alone = p.most, true
	case p.alone || since > paceActive: // what others can take is to be found out
		p.units, p.alone = min(p.most, 2*p.processors), false
	case p.last.since(before) > paceDelay:
		p.units = max(p.units*paceSlower, min(p.most, least))
	default:
		p.units = min(p.most, p.units*math.Pow(paceFaster, float64(since)/float64(paceEvery)))
	}
}

// delays are how long goroutines have waited for a processor since the process began.
type delays struct {
	counts  []uint64
	seconds []float64 // what those of a count waited at least
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

// since is how long one in a hundred has waited since others were taken.
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
