// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"runtime/metrics"
	"sync"
	"time"
)

const (
	// paceEvery is how often at most the process is looked at.
	paceEvery = 50 * time.Millisecond
	// paceDelay is how long at most one goroutine in a hundred waits for a processor in a process that is not too busy.
	paceDelay = time.Millisecond
	// paceActive is how long a space counts as one that uses the process after its last request.
	paceActive = 5 * time.Second
	// paceCredit is how much work a space may have done at once, however little it may have in the long run.
	paceCredit = 100 * time.Millisecond
	// paceSlower and paceFaster are by what the pace changes each time.
	paceSlower, paceFaster = 0.6, 1.02
)

// pace is how much one space may have executed at once while others use the process, too. While goroutines wait for a processor
// it becomes less, down to an equal share for each space; afterwards it slowly becomes more. A space that is alone may have all.
// It is safe for concurrent use.
type pace struct {
	most       float64 // units
	processors float64
	delays     func() delays

	mu sync.Mutex
	// units are how many a space may have at once. Below 1, they are the part of the time in which it may have one.
	units  float64
	alone  bool
	looked time.Time
	last   delays
	spaces map[string]*paced
}

// paced is a space that uses the process.
type paced struct {
	asked time.Time     // its last request
	work  time.Duration // executed for it, and not made up for by time
	at    time.Time     // when that was so
}

func newPace(most, processors int) *pace {
	return &pace{
		most: float64(most), units: float64(most), alone: true, processors: float64(processors), delays: schedulerDelays, spaces: map[string]*paced{},
	}
}

// share is how many units a space may have at once, and how long it has to wait until it may have any.
func (p *pace) share(space string) (units int, wait time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	s := p.of(space, now)
	s.asked = now
	p.look(now)
	if p.units >= 1 {
		return int(p.units), 0
	}
	return 1, time.Duration(float64(max(0, s.work-paceCredit)) / p.units)
}

// worked counts what was executed for a space.
func (p *pace) worked(space string, d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.units < 1 {
		p.of(space, time.Now()).work += d
	}
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

// look sets the pace anew. The pace is locked.
func (p *pace) look(now time.Time) {
	since := now.Sub(p.looked)
	if since < paceEvery {
		return
	}
	p.looked = now
	for name, s := range p.spaces {
		if now.Sub(s.asked) > paceActive {
			delete(p.spaces, name)
		}
	}
	before := p.last
	p.last = p.delays()
	switch {
	case len(p.spaces) < 2:
		p.units, p.alone = p.most, true
	case p.alone || since > paceActive: // what others can take is to be found out
		p.units, p.alone = min(p.most, 2*p.processors), false
	case p.last.since(before) > paceDelay:
		p.units = max(p.units*paceSlower, min(p.most, p.processors/float64(len(p.spaces))))
	default:
		p.units = min(p.most, p.units*paceFaster)
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
		if seen += counts[i]; seen > total/100 {
			return time.Duration(max(0, d.seconds[i]) * float64(time.Second))
		}
	}
	return 0
}
