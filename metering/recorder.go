// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package metering

import (
	"context"
	"net/http"
	"sync"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/berth-dev/berth/metrics"
)

// Config configures a [Recorder]. All fields are required. The functions may be called concurrently.
type Config struct {
	Store *Store
	// TenantOf returns the tenant of a space; "" if it has none. It must not block.
	TenantOf func(space string) string
	// Samples returns what all spaces use now.
	Samples func(context.Context) []Sample
	Clock   clock.Clock
	Logger  klog.Logger
}

// Recorder records what tenants use. It is safe for concurrent use, and implements what the gateway calls a meter.
type Recorder struct {
	config Config

	mu     sync.Mutex
	live   map[key]*counts    // since the last flush
	spaces map[key]int        // of live, by hour and tenant
	totals map[string]*Totals // by space
	lost   int64              // how often there was no place in live

	sampling sync.Mutex
	sampled  time.Time          // when the last sample was taken
	objects  map[string]float64 // last known, by space

	flushing sync.Mutex
	pending  *batch // taken from live, and not known to be written
	rolled   int64  // the hour of the last roll-up
}

// maxLive limits what is in memory while records can't be written, such as when the disk is full.
const maxLive = 50_000

// New returns a recorder. [Recorder.Start] starts it.
func New(c Config) *Recorder {
	return &Recorder{config: c, live: map[key]*counts{}, spaces: map[key]int{}, totals: map[string]*Totals{}}
}

// Begin counts a request to a space. moved is called with the bytes of bodies and streams as they are received and sent, also after the
// end. end is called when the request has ended, with the status code of the response, 0 if there was none.
func (r *Recorder) Begin(space string, request *http.Request) (moved func(received, sent int64), end func(code int)) {
	tenant := r.config.TenantOf(space) // now, as the space may not exist any more when the request ends
	verb, long := metrics.VerbOf(request)
	start := r.config.Clock.Now()
	moved = func(received, sent int64) {
		r.mu.Lock()
		defer r.mu.Unlock()
		if c := r.of(r.config.Clock.Now().Unix(), tenant, space); c != nil {
			c.received += received
			c.sent += sent
		}
	}
	end = func(code int) {
		now := r.config.Clock.Now()
		r.mu.Lock()
		defer r.mu.Unlock()
		c := r.of(now.Unix(), tenant, space)
		if c == nil {
			return
		}
		c.count(call{verb, knownCode(code)}, 1)
		if !long {
			c.latency += max(0, now.Sub(start).Microseconds())
			c.timed++
		}
	}
	return moved, end
}

// Rejected does nothing: a rejected request ends with 429 and is counted like any other.
func (*Recorder) Rejected(string, string) {}

// of returns the counts of a space at a time, in seconds; nil if there is no place for them. The caller holds mu.
func (r *Recorder) of(at int64, tenant, space string) *counts {
	k := key{at - mod(at, hour), tenant, space}
	c := r.live[k]
	if c != nil {
		return c
	}
	group := key{hour: k.hour, tenant: tenant}
	if r.spaces[group] >= MaxSpaces {
		k.space = Others
		if c = r.live[k]; c != nil {
			return c
		}
	}
	if len(r.live) >= maxLive {
		r.lost++
		return nil
	}
	c = &counts{}
	r.live[k] = c
	r.spaces[group]++
	return c
}
