// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package metering

import (
	"context"
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/berth-dev/berth/internal/safego"
)

const (
	// flushEvery is how often what was counted is written. A crash loses what was counted since.
	flushEvery = 10 * time.Second
	// sampleEvery is the shortest time between two samples. The time is random, up to three times as long: otherwise, a tenant could have its
	// pods between two samples only.
	sampleEvery = 30 * time.Second
)

// Start starts to sample and to flush in the background. stop ends that, and writes what was counted by then. Requests must not be counted
// any more.
func (r *Recorder) Start(ctx context.Context) (stop func(context.Context), err error) {
	if r.objects, err = r.config.Store.objects(ctx); err != nil {
		return nil, err
	}
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	var group sync.WaitGroup
	safego.Go(&group, "sample what spaces use", func() {
		r.repeat(life, func() time.Duration { return wait.Jitter(sampleEvery, 2) }, func() { r.Sample(life) })
	}, nil)
	safego.Go(&group, "write records of use", func() {
		r.repeat(life, func() time.Duration { return flushEvery }, func() { r.flushAndRoll(life) })
	}, nil)
	return func(ctx context.Context) {
		end()
		group.Wait()
		r.Sample(ctx)
		r.flushAndRoll(ctx)
	}, nil
}

// repeat calls do at once and then after pauses, until ctx ends.
func (r *Recorder) repeat(ctx context.Context, pause func() time.Duration, do func()) {
	for {
		do()
		timer := r.config.Clock.NewTimer(pause())
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C():
		}
	}
}

// flushAndRoll writes what was counted, and once in an hour rolls up what is old. What fails is repeated.
func (r *Recorder) flushAndRoll(ctx context.Context) {
	if err := r.Flush(ctx); err != nil && ctx.Err() == nil {
		r.config.Logger.Error(err, "Could not write records of use; Berth keeps them in memory and retries", "after", flushEvery)
	}
	now := r.config.Clock.Now()
	this := now.Unix() / hour
	r.flushing.Lock()
	defer r.flushing.Unlock()
	if this == r.rolled {
		return
	}
	if err := r.config.Store.rollUp(ctx, now); err != nil {
		if ctx.Err() == nil {
			r.config.Logger.Error(err, "Could not roll up old records of use; Berth retries", "after", flushEvery)
		}
		return
	}
	r.rolled = this
}

// Flush writes what was counted. If that fails, nothing is lost, and the next flush writes it.
func (r *Recorder) Flush(ctx context.Context) error {
	r.flushing.Lock()
	defer r.flushing.Unlock()
	for range 2 { // what an earlier flush could not write, and what was counted since
		if r.pending == nil {
			r.pending = r.take()
		}
		if r.pending == nil {
			break
		}
		if err := r.config.Store.write(ctx, r.pending); err != nil {
			return err
		}
		r.pending = nil
	}
	return nil
}

// batch is what one flush writes. number is that of the flush, 0 until the store gives it one.
type batch struct {
	number  int64
	counts  map[key]*counts
	objects map[string]float64
}

// take takes what was counted since the last time; nil if nothing was. The caller holds flushing.
func (r *Recorder) take() *batch {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.lost > 0 {
		r.config.Logger.Error(nil, "Records of use are incomplete: too much waits to be written", "lost", r.lost)
		r.lost = 0
	}
	if len(r.live) == 0 {
		return nil
	}
	b := &batch{counts: r.live, objects: maps.Clone(r.objects)}
	r.live, r.spaces = map[key]*counts{}, map[key]int{}
	return b
}
