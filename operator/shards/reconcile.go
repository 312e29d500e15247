// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package shards

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/operator/placement"
)

const (
	// lookInterval is how often a platform with shards is looked at, at least: what shards report is no event. A platform of which
	// a space waits for a shard is looked at as often.
	lookInterval = 10 * time.Second
	// minInterval is the shortest pause until the end of a Lease.
	minInterval = 100 * time.Millisecond
	// deadInterval is how often a shard is looked at whose Lease has ended, and that may be dead.
	deadInterval = 250 * time.Millisecond
	// maxFailovers is how many spaces of dead shards fail over in a second.
	maxFailovers = 50
)

// reconciler decides for all spaces of a platform at once. Reconciles don't overlap.
type reconciler struct {
	client   client.Client // reads from the cache
	events   events.EventRecorder
	clock    clock.PassiveClock
	liveness *liveness
	// started is when the process began to decide. Moves before that aren't known.
	started time.Time
	memory  map[string]*memory // by platform
}

func newReconciler(c client.Client, events events.EventRecorder, clock clock.PassiveClock) *reconciler {
	return &reconciler{client: c, events: events, clock: clock, liveness: newLiveness(clock), started: clock.Now(), memory: map[string]*memory{}}
}

// round is one reconcile of a platform.
type round struct {
	*reconciler
	memory *memory
	plan   *placement.Plan
	shards []placement.Shard
	spaces []*v1alpha1.Space // of the cache, which are not to be changed, by age
	facts  map[string]placement.Space
	byName map[string]*v1alpha1.Space
	errs   []error
	// again is when the platform is to be looked at again.
	again time.Duration
	// open says that it isn't known yet which shards are alive, because the process has just started.
	open bool
}

// Reconcile implements [reconcile.Reconciler]. The request names a platform.
func (r *reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	one := &round{reconciler: r, facts: map[string]placement.Space{}, byName: map[string]*v1alpha1.Space{}, again: lookInterval}
	if err := one.readShards(ctx, request.Name); err != nil {
		return reconcile.Result{}, err
	}
	if one.open {
		return reconcile.Result{RequeueAfter: one.again}, nil
	}
	if len(one.shards) == 0 {
		delete(r.memory, request.Name)
		return reconcile.Result{}, nil // the platform claims its spaces by itself
	}
	if r.memory[request.Name] == nil {
		r.memory[request.Name] = newMemory()
	}
	one.memory = r.memory[request.Name]
	for i := range one.shards {
		one.shards[i].Balanced = one.memory.balanced[one.shards[i].Name]
	}
	if err := one.readSpaces(ctx, request.Name); err != nil {
		return reconcile.Result{}, err
	}
	one.withdraw(ctx)
	one.failOver(ctx)
	one.place(ctx)
	one.direct(ctx)
	one.move(ctx)
	if err := errors.Join(one.errs...); err != nil {
		return reconcile.Result{}, err
	}
	return reconcile.Result{RequeueAfter: one.again}, nil
}

// readShards reads the shards of a platform. It returns none if they can't be read.
func (one *round) readShards(ctx context.Context, platform string) error {
	list := &v1alpha1.ShardList{}
	if err := one.client.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list shards: %w", err)
	}
	for i := range list.Items {
		if shard := &list.Items[i]; shard.Spec.PlatformName == platform {
			alive, left := one.liveness.check(shard.Name)
			if alive {
				one.again = min(one.again, max(left, minInterval))
			}
			ready := alive && reportsReady(shard)
			dead, lost := one.liveness.dead(shard.Name), one.liveness.lost(shard.Name, ready)
			if !alive && !dead && !lost {
				one.again = min(one.again, deadInterval)
			}
			if open, left := one.liveness.open(shard.Name); open && reportsReady(shard) {
				one.open, one.again = true, min(one.again, left)
			}
			one.shards = append(one.shards, shardOf(shard, ready, lost, dead))
		}
	}
	return nil
}

// readSpaces reads the spaces of a platform, and makes the plan.
func (one *round) readSpaces(ctx context.Context, platform string) error {
	list := &v1alpha1.SpaceList{}
	if err := one.client.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list spaces: %w", err)
	}
	state := map[string]placement.Shard{}
	for _, shard := range one.shards {
		state[shard.Name] = shard
	}
	var facts []placement.Space
	for i := range list.Items {
		space := &list.Items[i]
		if space.Spec.PlatformName != platform {
			continue
		}
		space = one.memory.latest(space)
		fact := spaceOf(space, one.memory.note(space, one.clock.Now(), one.started))
		if on, known := state[fact.Shard]; fact.New && fact.Shard != "" && (!known || on.Lost) {
			fact.Shard = "" // the shard never had it
		}
		one.spaces, facts = append(one.spaces, space), append(facts, fact)
		one.facts[space.Name], one.byName[space.Name] = fact, space
	}
	one.memory.prune(one.byName)
	slices.SortFunc(one.spaces, func(a, b *v1alpha1.Space) int {
		if order := a.CreationTimestamp.Compare(b.CreationTimestamp.Time); order != 0 {
			return order
		}
		return strings.Compare(a.Name, b.Name)
	})
	one.plan = placement.New(one.shards, facts)
	return nil
}
