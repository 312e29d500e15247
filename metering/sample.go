// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package metering

import (
	"context"
	"maps"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
)

// Sample is what a space uses at a moment.
type Sample struct {
	Tenant, Space string
	// CPU is requested, in cores. Memory and Storage are requested, in bytes. Pods are pods on the host.
	CPU, Memory, Storage, Pods float64
	// Store is the size of the space's own store, in bytes.
	Store float64
	// Objects are those in the space; nil if that isn't known now, such as while the space sleeps.
	Objects *float64
}

// maxGap is the longest time for which one sample counts. If samples are farther apart, the time between them is a gap.
const maxGap = 5 * time.Minute

// Totals are what a space has used since the recorder was made: amounts multiplied by seconds.
type Totals struct{ CPU, Memory, Storage, Pods float64 }

// Totals returns those of a space.
func (r *Recorder) Totals(space string) Totals {
	r.mu.Lock()
	defer r.mu.Unlock()
	if t := r.totals[space]; t != nil {
		return *t
	}
	return Totals{}
}

// Sample counts what all spaces use now for the time since the last sample.
func (r *Recorder) Sample(ctx context.Context) {
	r.sampling.Lock()
	defer r.sampling.Unlock()
	samples := r.config.Samples(ctx)
	now := r.config.Clock.Now()
	passed := now.Sub(r.sampled)
	first := r.sampled.IsZero()
	r.sampled = now
	known, exist := map[string]float64{}, sets.Set[string]{}
	for _, s := range samples {
		exist.Insert(s.Space)
		if s.Objects != nil {
			known[s.Space] = amount(*s.Objects)
		} else if last, found := r.objects[s.Space]; found {
			known[s.Space] = last
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.objects = known
	if first || passed > maxGap || passed <= 0 {
		return
	}
	for _, s := range samples {
		splitHours(now.Add(-passed), now, func(start int64, seconds float64) {
			objects, counted := known[s.Space]
			a := s.during(seconds, objects, counted)
			if c := r.of(start, s.Tenant, s.Space); c != nil {
				c.add(a)
			}
			r.total(s.Space, a)
		})
	}
	maps.DeleteFunc(r.totals, func(space string, _ *Totals) bool { return !exist.Has(space) })
}

// during returns the amounts that a space uses in some seconds.
func (s *Sample) during(seconds, objects float64, counted bool) amounts {
	a := amounts{
		sampled: seconds, cpu: amount(s.CPU) * seconds, memory: amount(s.Memory) * seconds, storage: amount(s.Storage) * seconds,
		pods: amount(s.Pods) * seconds, store: amount(s.Store) * seconds,
	}
	if counted {
		a.counted, a.objects = seconds, objects*seconds
	}
	return a
}

// total adds to what a space has used. The caller holds mu.
func (r *Recorder) total(space string, a amounts) {
	t := r.totals[space]
	if t == nil {
		t = &Totals{}
		r.totals[space] = t
	}
	t.CPU += a.cpu
	t.Memory += a.memory
	t.Storage += a.storage
	t.Pods += a.pods
}
