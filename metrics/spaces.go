// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"maps"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"

	"github.com/berth-dev/berth/bounds"
)

// Space is what is known of a space at a moment.
type Space struct {
	Name string
	// State is one of the States.
	State string
	// Ready says that the space serves, or sleeps and would wake for a request.
	Ready bool
	// Store figures are missing of a space whose store can't tell now.
	Store *Store
	// HostObjects counts what the space has on the host, by kind.
	HostObjects map[string]int
	// Sync counts the syncer's work since the space woke; nil if it sleeps.
	Sync *Sync
	// Limits is what the space uses of what is bounded; none if it sleeps.
	Limits []bounds.Usage
	// QuotaDrift is how much more the host's quota counts than the space has, of the resources of which they don't agree.
	QuotaDrift corev1.ResourceList
	// ReplicationLag is for how many seconds a write has not been in the replica of the store; nil if the space has no replica.
	ReplicationLag *float64
	// Tenant is empty if the space has none.
	Tenant string
	// Use is what the space has used in this process's life, by resource, multiplied by seconds.
	Use map[string]float64
}

// maxDrifts is the highest number of series of drift that a space has. A tenant can use many of the resources that its quota names.
const maxDrifts = 20

// States a space can be in.
const (
	Asleep   = "asleep"
	Starting = "starting"
	Awake    = "awake"
	Stopping = "stopping"
	Failed   = "failed"
)

var states = []string{Asleep, Starting, Awake, Stopping, Failed}

// Store figures, in bytes where nothing else is said.
type Store struct {
	File, Log, Live int64 // the SQLite file, the log beside it, and what of the file is in use
	Limit           int64 // of the file; 0 if there is none
	Revision        int64 // of the last write; 0 if the space sleeps
}

// Sync counts reconciles by how they ended.
type Sync struct {
	Done, Conflicts, Refused, Failed uint64
	Queued                           int
}

// spacesCollector makes metrics of what is there when it is asked, so that
// nothing is left of what is there no more.
type spacesCollector struct{ *Metrics }

type desc struct {
	*prometheus.Desc
	kind prometheus.ValueType
}

func gauge(name, help string, labels ...string) desc {
	return desc{prometheus.NewDesc(name, help, labels, nil), prometheus.GaugeValue}
}

func counter(name, help string, labels ...string) desc {
	return desc{prometheus.NewDesc(name, help, labels, nil), prometheus.CounterValue}
}

// descs describe the metrics that are made when they are read.
type descs struct {
	spaces, ready, awake, wakes, requests, underWay, rejected, storeBytes,
	storeLimit, revision, hostObjects, reconciles, queued, snapshot, certificates,
	limitUsed, limit, limitRefused, quotaDrift, info, bytes, use, lag, cached desc
}

func newDescs() descs {
	return descs{
		spaces:       gauge("berth_spaces", "Spaces of this berth, by state.", "state"),
		ready:        gauge("berth_space_ready", "Whether the space serves, or sleeps and would wake for a request.", "space"),
		awake:        gauge("berth_space_awake", "Whether the space's control plane runs.", "space"),
		wakes:        counter("berth_space_wakes_total", "Starts of the space, by result.", "space", "result"),
		requests:     counter("berth_space_requests_total", "Requests to the space that have ended, by what they wanted and the class of the answer's status code.", "space", "verb", "code"),
		underWay:     gauge("berth_space_requests_in_flight", "Requests to the space that are under way.", "space", "verb"),
		rejected:     counter("berth_space_requests_rejected_total", "Requests that the gateway refused because the space had reached a limit.", "space", "limit"),
		storeBytes:   gauge("berth_space_store_bytes", "Size of the space's store: its file, the log beside it, and what of the file is in use.", "space", "part"),
		storeLimit:   gauge("berth_space_store_limit_bytes", "Size at which the space's store takes no more writes.", "space"),
		revision:     gauge("berth_space_store_revision", "Revision of the last write to the space's store.", "space"),
		lag:          gauge("berth_space_replication_lag_seconds", "For how long a write to the space's store has not been in its replica; 0 if the replica has all. Missing without replication.", "space"),
		hostObjects:  gauge("berth_space_host_objects", "Objects on the host that are the space's, by kind.", "space", "kind"),
		reconciles:   counter("berth_space_sync_reconciles_total", "Reconciles of the space's syncer since it woke, by result.", "space", "result"),
		queued:       gauge("berth_space_sync_queued", "Objects that wait for the space's syncer.", "space"),
		snapshot:     gauge("berth_space_snapshot_timestamp_seconds", "When the space was last found to be in a snapshot as it is, in this process's life.", "space"),
		limitUsed:    gauge("berth_space_limit_used", "How much the space uses of what is bounded, in the limit's unit.", "space", "limit"),
		limit:        gauge("berth_space_limit", "The space's limit.", "space", "limit"),
		limitRefused: counter("berth_space_limit_refused_total", "What was refused to the space for a limit since it woke.", "space", "limit"),
		quotaDrift:   gauge("berth_space_quota_drift", "How much more the host's quota counts than the space's pods and claims use, in cores, bytes, or as a count. Missing if they agree.", "space", "resource"),
		info:         gauge("berth_space_info", "Always 1; its labels are the space and its tenant.", "space", "tenant"),
		bytes:        counter("berth_space_request_bytes_total", "Bytes of requests to the space, their answers, and streams, without headers.", "space", "direction"),
		use:          counter("berth_space_use_seconds_total", "What the space's pods and claims have requested, multiplied by seconds, in cores, bytes, or as a count.", "space", "resource"),
		cached:       gauge("berth_host_cached_objects", "Objects of the host in the memory of this process, by whether their space is one that this process has.", "of"),
		certificates: gauge("berth_certificate_expiry_timestamp_seconds", "When a certificate of this process ends; it is renewed before.", "certificate"),
	}
}

// Describe implements [prometheus.Collector].
func (c spacesCollector) Describe(out chan<- *prometheus.Desc) {
	d := c.descs
	for _, one := range []desc{
		d.spaces, d.ready, d.awake, d.wakes, d.requests, d.underWay, d.rejected, d.storeBytes, d.storeLimit, d.revision,
		d.hostObjects, d.reconciles, d.queued, d.snapshot, d.certificates,
		d.limitUsed, d.limit, d.limitRefused, d.quotaDrift, d.info, d.bytes, d.use, d.lag, d.cached,
	} {
		out <- one.Desc
	}
}

// emit takes a value and the values of its labels.
type emit func(d desc, value float64, labels ...string)

// Collect implements [prometheus.Collector].
func (c spacesCollector) Collect(out chan<- prometheus.Metric) {
	e := func(d desc, value float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d.Desc, d.kind, value, labels...)
	}
	d, names, spaces := &c.descs, c.config.Names(), c.config.Spaces()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.forget(names)
	count := map[string]int{}
	for _, s := range spaces {
		count[s.State]++
		s.collect(d, e)
		if counted := c.spaces[s.Name]; counted != nil {
			counted.collect(d, e, s.Name)
		}
	}
	for _, state := range states {
		e(d.spaces, float64(count[state]), state)
	}
	if c.config.Cached != nil {
		own, other := c.config.Cached()
		e(d.cached, float64(own), "own")
		e(d.cached, float64(other), "other")
	}
	if c.config.Certificates != nil {
		for name, end := range c.config.Certificates() {
			e(d.certificates, float64(end.Unix()), name)
		}
	}
}

func (s *Space) collect(d *descs, e emit) {
	e(d.ready, truth(s.Ready), s.Name)
	e(d.awake, truth(s.State == Awake), s.Name)
	if s.Store != nil {
		e(d.storeBytes, float64(s.Store.File), s.Name, "file")
		if s.Store.Revision > 0 {
			e(d.storeBytes, float64(s.Store.Log), s.Name, "log")
			e(d.storeBytes, float64(s.Store.Live), s.Name, "live")
			e(d.revision, float64(s.Store.Revision), s.Name)
		}
		if s.Store.Limit > 0 {
			e(d.storeLimit, float64(s.Store.Limit), s.Name)
		}
	}
	if s.ReplicationLag != nil {
		e(d.lag, *s.ReplicationLag, s.Name)
	}
	for _, kind := range slices.Sorted(maps.Keys(s.HostObjects)) {
		e(d.hostObjects, float64(s.HostObjects[kind]), s.Name, kind)
	}
	for _, u := range s.Limits {
		name := u.Quantity.String()
		e(d.limitUsed, float64(u.Used), s.Name, name)
		e(d.limit, float64(u.Limit), s.Name, name)
		e(d.limitRefused, float64(u.Refused), s.Name, name)
	}
	for i, resource := range slices.Sorted(maps.Keys(s.QuotaDrift)) {
		if i == maxDrifts {
			break
		}
		amount := s.QuotaDrift[resource]
		e(d.quotaDrift, amount.AsApproximateFloat64(), s.Name, string(resource))
	}
	e(d.info, 1, s.Name, s.Tenant)
	for _, resource := range slices.Sorted(maps.Keys(s.Use)) {
		e(d.use, s.Use[resource], s.Name, resource)
	}
	if s.Sync != nil {
		e(d.reconciles, float64(s.Sync.Done), s.Name, "done")
		e(d.reconciles, float64(s.Sync.Conflicts), s.Name, "conflict")
		e(d.reconciles, float64(s.Sync.Refused), s.Name, "refused")
		e(d.reconciles, float64(s.Sync.Failed), s.Name, "failed")
		e(d.queued, float64(s.Sync.Queued), s.Name)
	}
}

// collect is called with the lock of the Metrics.
func (c *counters) collect(d *descs, e emit, space string) {
	for v := range verbs {
		for code := range class(classes) {
			if n := c.requests.ended[v][code].Load(); n > 0 {
				e(d.requests, float64(n), space, v.String(), code.String())
			}
		}
		if n := c.requests.underWay[v].Load(); n > 0 {
			e(d.underWay, float64(n), space, v.String())
		}
	}
	e(d.bytes, float64(c.requests.received.Load()), space, "received")
	e(d.bytes, float64(c.requests.sent.Load()), space, "sent")
	for limit, n := range c.rejected {
		e(d.rejected, float64(n), space, limit)
	}
	for result, n := range c.wakes {
		if n > 0 {
			e(d.wakes, float64(n), space, wakeResults[result])
		}
	}
	if !c.lastSnapshot.IsZero() {
		e(d.snapshot, float64(c.lastSnapshot.Unix()), space)
	}
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
