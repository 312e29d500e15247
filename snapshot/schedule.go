// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"context"
	"maps"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/berth-dev/berth/internal/safego"
)

const (
	// lookAgain is how often a keeper checks for new spaces and changed schedules.
	lookAgain = time.Minute
	// retryAfter is the pause before a failed snapshot is retried, unless the next one is due earlier.
	retryAfter = time.Hour
)

// Schedule says where snapshots of a space are stored, how often they are taken, and how many are kept. If Bucket is
// nil or Every is 0, none are taken.
type Schedule struct {
	Bucket *Bucket
	Every  time.Duration
	Keep   int
}

// kept is what a keeper knows about a space with a schedule.
type kept struct {
	bucket   *Bucket
	last     time.Time // the last attempt, or the newest snapshot of an earlier process; zero if there is none
	failed   bool      // the last attempt has failed
	revision int64     // of the store at the last scheduled snapshot; 0 if it is unknown
}

// resume reads the times of the newest snapshots that an earlier process has taken.
func (k *Keeper) resume(ctx context.Context) {
	for _, bucket := range append([]*Bucket{k.config.Bucket}, k.config.Others...) {
		if bucket == nil {
			continue
		}
		infos, err := bucket.List(ctx, "")
		if err != nil {
			k.config.Logger.Error(err, "Could not list earlier snapshots; Berth takes new ones of all spaces")
		}
		newest := map[string]time.Time{}
		for _, info := range infos { // the newest first
			if _, has := newest[info.Space]; !has {
				newest[info.Space] = info.Time
			}
		}
		k.mu.Lock()
		k.earlier[bucket] = newest
		k.mu.Unlock()
	}
}

// round takes the snapshots that are due, one after the other, and returns when the next round is due. It does not wait
// for those of spaces that run elsewhere.
func (k *Keeper) round(ctx context.Context) time.Duration {
	names := k.config.Spaces.Names()
	k.forget(names)
	next := k.config.Clock.Now().Add(lookAgain)
	for _, space := range names {
		due, scheduled := k.due(space)
		if ctx.Err() != nil {
			return 0
		}
		if scheduled && !due.After(k.config.Clock.Now()) {
			if k.elsewhere(space) {
				k.keepInBackground(ctx, space)
				continue
			}
			k.keep(ctx, space)
			due, scheduled = k.due(space)
		}
		if scheduled && due.Before(next) {
			next = due
		}
	}
	return max(0, next.Sub(k.config.Clock.Now()))
}

// keepInBackground starts keep, unless it is running for the space, and does not wait. The next round computes when the
// next snapshot is due.
func (k *Keeper) keepInBackground(ctx context.Context, space string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.busy[space] {
		return
	}
	k.busy[space] = true
	safego.Go(&k.background, "take a snapshot", func() {
		defer func() {
			k.mu.Lock()
			defer k.mu.Unlock()
			delete(k.busy, space)
		}()
		k.keep(ctx, space)
	}, nil)
}

// due returns when the next snapshot of a space is due; false if none is. If the destination has changed, it is due at
// once. If several were missed while no process ran, only one is taken.
func (k *Keeper) due(space string) (at time.Time, scheduled bool) {
	s := k.schedule(space)
	if s.Bucket == nil || s.Every <= 0 {
		k.mu.Lock()
		defer k.mu.Unlock()
		delete(k.kept, space)
		return time.Time{}, false
	}
	k.mu.Lock()
	one := k.kept[space]
	isNew := one == nil || one.bucket != s.Bucket
	if isNew {
		one = &kept{bucket: s.Bucket, last: k.earlier[s.Bucket][space]}
		delete(k.earlier[s.Bucket], space)
		k.kept[space] = one
	}
	last, failed := one.last, one.failed
	k.mu.Unlock()
	if isNew && !last.IsZero() && k.unchanged(space, k.config.Spaces.Revision(space), last) {
		last = k.config.Clock.Now() // nothing was missed
		k.note(space, func(one *kept) { one.last = last })
	}
	if failed {
		return last.Add(min(s.Every, retryAfter)), true
	}
	return last.Add(s.Every), true
}

// schedule returns the schedule of a space.
func (k *Keeper) schedule(space string) Schedule {
	if k.config.Schedule == nil {
		return Schedule{k.config.Bucket, k.config.Every, k.config.Keep}
	}
	return k.config.Schedule(space)
}

// note changes what is known about a space, if it has a schedule.
func (k *Keeper) note(space string, change func(*kept)) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if one := k.kept[space]; one != nil {
		change(one)
	}
}

// forget removes spaces that no longer exist.
func (k *Keeper) forget(names []string) {
	there := sets.New(names...)
	k.mu.Lock()
	defer k.mu.Unlock()
	maps.DeleteFunc(k.kept, func(space string, _ *kept) bool { return !there.Has(space) })
	maps.DeleteFunc(k.turns, func(space string, turn chan struct{}) bool { return !there.Has(space) && len(turn) == 0 })
}
