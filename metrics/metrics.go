// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"maps"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/clock"
)

// Config says whom to ask. All functions are called when metrics are read, also
// concurrently, and must answer without waiting for a space.
type Config struct {
	// Version of Berth, and of the Kubernetes in it.
	Version, Kubernetes string
	// Names lists the spaces that there are.
	Names func() []string
	// Spaces tells what is known of them.
	Spaces func() []Space
	// Cached returns how many host objects are cached of the spaces that this process has, and of others.
	Cached func() (own, other int)
	// Certificates tells when each certificate of the process's own ends.
	Certificates func() map[string]time.Time
	Clock        clock.PassiveClock // the system clock if nil
}

// Metrics are those of one process. Its methods may be called concurrently.
type Metrics struct {
	config   Config
	registry *prometheus.Registry

	descs descs

	mu       sync.Mutex
	spaces   map[string]*counters
	forgetAt int // as many spaces are looked through for those that are gone

	durations *prometheus.HistogramVec
	wakes     *prometheus.HistogramVec
	snapshots *prometheus.CounterVec
}

// counters are of one space, and go with it.
type counters struct {
	requests     requests
	wakes        [2]uint64 // those that failed, those that did not
	rejected     map[string]uint64
	lastSnapshot time.Time
}

// New returns metrics that count from zero.
func New(c Config) *Metrics {
	if c.Clock == nil {
		c.Clock = clock.RealClock{}
	}
	m := &Metrics{
		config: c, registry: prometheus.NewRegistry(), descs: newDescs(), spaces: map[string]*counters{},
		durations: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "berth_request_duration_seconds", Help: "Time from a request's arrival at the gateway to the end of its answer, except of watches and streams.",
			Buckets: []float64{0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60},
		}, []string{"verb"}),
		wakes: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "berth_wake_duration_seconds", Help: "Time from when a space was wanted until it served, or failed to.",
			Buckets: []float64{0.1, 0.2, 0.3, 0.5, 0.75, 1, 1.5, 2, 3, 5, 10, 30, 60, 120},
		}, []string{"result"}),
		snapshots: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "berth_snapshots_total", Help: "Snapshots that were taken, that found nothing new, or that failed.",
		}, []string{"result"}),
	}
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "berth_build_info", Help: "Always 1; its labels are the versions of Berth and of the Kubernetes in it.",
		ConstLabels: prometheus.Labels{"version": c.Version, "kubernetes": c.Kubernetes},
	})
	build.Set(1)
	m.registry.MustRegister(m.own(build)...)
	m.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

func (m *Metrics) own(build prometheus.Collector) []prometheus.Collector {
	return []prometheus.Collector{build, m.durations, m.wakes, m.snapshots, spacesCollector{m}}
}

// Handler serves the metrics. They name every space: it is for the platform's
// admins alone.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{})
}

// of returns the counters of a space that there is. It calls nobody else, as
// whoever tells what happens may hold locks.
func (m *Metrics) of(space string) *counters {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := m.spaces[space]
	if c == nil {
		c = &counters{}
		m.spaces[space] = c
	}
	return c
}

// forget drops what is known of spaces that are no more. The caller holds mu.
func (m *Metrics) forget(names []string) {
	there := sets.New(names...)
	maps.DeleteFunc(m.spaces, func(name string, _ *counters) bool { return !there.Has(name) })
	m.forgetAt = 2*len(names) + 1
}

// tidy forgets now and then, for a process whose metrics nobody reads.
func (m *Metrics) tidy() {
	m.mu.Lock()
	due := len(m.spaces) > m.forgetAt
	m.mu.Unlock()
	if due {
		names := m.config.Names()
		m.mu.Lock()
		m.forget(names)
		m.mu.Unlock()
	}
}

// Begin counts a request to a space. moved is called with the bytes that are
// received and sent, and end when the request has ended, with the status code of
// the answer, 0 if there was none.
func (m *Metrics) Begin(space string, r *http.Request) (moved func(received, sent int64), end func(code int)) {
	m.tidy()
	c, v, start := m.of(space), verbOf(r), m.config.Clock.Now()
	c.requests.underWay[v].Add(1)
	moved = func(received, sent int64) {
		c.requests.received.Add(uint64(received))
		c.requests.sent.Add(uint64(sent))
	}
	return moved, func(code int) {
		c.requests.underWay[v].Add(-1)
		c.requests.ended[v][classOf(code)].Add(1)
		if !v.long() {
			m.durations.WithLabelValues(v.String()).Observe(m.config.Clock.Since(start).Seconds())
		}
	}
}

// Rejected counts a request that was refused because its space has reached a limit.
func (m *Metrics) Rejected(space, limit string) {
	c := m.of(space)
	m.mu.Lock()
	defer m.mu.Unlock()
	if c.rejected == nil {
		c.rejected = map[string]uint64{}
	}
	c.rejected[limit]++
}

// Woken counts a start of a space, and how long whoever wanted it waited.
func (m *Metrics) Woken(space string, took time.Duration, err error) {
	c, result := m.of(space), 1
	if err != nil {
		result = 0
	}
	m.mu.Lock()
	c.wakes[result]++
	m.mu.Unlock()
	m.wakes.WithLabelValues(wakeResults[result]).Observe(took.Seconds())
}

var wakeResults = [2]string{"failed", "awake"}

// Snapshot results.
const (
	SnapshotTaken     = "taken"
	SnapshotUnchanged = "unchanged"
	SnapshotFailed    = "failed"
)

// Snapshot counts an attempt to take a snapshot of a space, by result.
func (m *Metrics) Snapshot(space, result string) {
	c := m.of(space)
	m.snapshots.WithLabelValues(result).Inc()
	if result != SnapshotFailed {
		m.mu.Lock()
		c.lastSnapshot = m.config.Clock.Now()
		m.mu.Unlock()
	}
}
