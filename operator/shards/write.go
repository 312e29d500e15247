// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package shards

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/operator/placement"
)

// fieldOwner is the field manager of the operator.
const fieldOwner = client.FieldOwner("berth-operator")

// withdraw ends moves to shards that are lost or don't exist. The store is still where it was: the shard to which a space moves serves
// it only once status.shard says so, and that write fails if it was preceded by this one.
func (one *round) withdraw(ctx context.Context) {
	for _, name := range one.plan.Stuck() {
		space := one.byName[name]
		to := space.Status.MovingTo
		if one.writeStatus(ctx, space, func(s *v1alpha1.SpaceStatus) { s.MovingTo = "" }) {
			one.tell(space, corev1.EventTypeWarning, v1alpha1.ReasonMoveRefused, fmt.Sprintf("the move to shard %s is withdrawn, because that shard isn't ready; the space stays on %s", to, space.Status.Shard))
		}
	}
}

// failOver has other shards serve the spaces of dead shards whose stores are in database servers. The dead shard may only hang: it can't
// write to the store any more once another one has opened it.
func (one *round) failOver(ctx context.Context) {
	now, m := one.clock.Now(), one.memory
	if now.Sub(m.failingSince) >= time.Second {
		m.failingSince, m.failedOver = now, 0
	}
	for _, move := range one.plan.FailOver(maxFailovers - m.failedOver) {
		m.failedOver++
		space := one.byName[move.Space]
		if one.writeStatus(ctx, space, func(s *v1alpha1.SpaceStatus) { s.Shard, s.MovingTo = move.To, "" }) {
			one.tell(space, corev1.EventTypeWarning, v1alpha1.ReasonFailedOver, fmt.Sprintf("shard %s is dead; shard %s serves the space, whose store is in a database server", move.From, move.To))
		}
	}
	if m.failedOver >= maxFailovers {
		one.again = min(one.again, time.Second)
	}
}

// place gives new spaces a shard, the oldest first.
func (one *round) place(ctx context.Context) {
	for _, space := range one.spaces {
		fact := one.facts[space.Name]
		if fact.Shard != "" || !fact.New || !space.DeletionTimestamp.IsZero() {
			continue
		}
		to, err := one.plan.Place(fact)
		if err != nil {
			one.tellWaiting(space, err.Error())
			continue
		}
		one.writeStatus(ctx, space, func(s *v1alpha1.SpaceStatus) { s.Shard = to })
	}
}

// direct has spaces move whose annotation asks for it, and removes the annotation.
func (one *round) direct(ctx context.Context) {
	for _, space := range one.spaces {
		to, asked := space.Annotations[v1alpha1.AnnotationMoveTo]
		if !asked || !space.DeletionTimestamp.IsZero() {
			continue
		}
		fact := one.facts[space.Name]
		if fact.MovingTo != "" && (to == "" || to == fact.MovingTo) { // an earlier process was stopped before it removed the annotation
			one.annotate(ctx, space, nil)
			continue
		}
		target, err := one.plan.Direct(fact, to)
		switch {
		case err != nil:
			one.tell(space, corev1.EventTypeWarning, v1alpha1.ReasonMoveRefused, err.Error())
			one.annotate(ctx, space, nil)
		case to == "" && !one.annotate(ctx, space, &target): // otherwise the space would move again if the process were stopped before the last write
		case one.writeMove(ctx, one.byName[space.Name], target, "as asked"):
			one.annotate(ctx, one.byName[space.Name], nil)
		}
	}
}

// move has spaces move off draining shards, and for balance.
func (one *round) move(ctx context.Context) {
	now := one.clock.Now()
	for _, move := range one.plan.Moves(now) {
		why := map[placement.Reason]string{
			placement.Drain: "because that is drained", placement.Balance: "because that has much more than the other",
			placement.Pool: "because the space is for shards such as the other, by its labels and spec.kubernetesVersion",
		}[move.Reason]
		if one.writeMove(ctx, one.byName[move.Space], move.To, why) && move.Reason == placement.Balance {
			one.memory.balanced[move.From], one.memory.balanced[move.To] = now, now
		}
	}
}

// writeMove has a space move.
func (one *round) writeMove(ctx context.Context, space *v1alpha1.Space, to, why string) bool {
	wrote := one.writeStatus(ctx, space, func(s *v1alpha1.SpaceStatus) { s.MovingTo = to })
	if wrote {
		one.tell(space, corev1.EventTypeNormal, v1alpha1.ReasonMoving, fmt.Sprintf("the space moves from shard %s to %s, %s", space.Status.Shard, to, why))
	}
	return wrote
}

// writeStatus changes the status of a space. It reports whether the host accepted that.
func (one *round) writeStatus(ctx context.Context, space *v1alpha1.Space, change func(*v1alpha1.SpaceStatus)) bool {
	after := space.DeepCopy()
	change(&after.Status)
	return one.wrote(space, after, one.client.Status().Patch(ctx, after, client.MergeFromWithOptions(space, client.MergeFromWithOptimisticLock{}), fieldOwner))
}

// annotate sets or removes the annotation that asks for a move. It reports whether the host accepted that.
func (one *round) annotate(ctx context.Context, space *v1alpha1.Space, to *string) bool {
	after := space.DeepCopy()
	if to == nil {
		delete(after.Annotations, v1alpha1.AnnotationMoveTo)
	} else {
		metav1.SetMetaDataAnnotation(&after.ObjectMeta, v1alpha1.AnnotationMoveTo, *to)
	}
	return one.wrote(space, after, one.client.Patch(ctx, after, client.MergeFromWithOptions(space, client.MergeFromWithOptimisticLock{}), fieldOwner))
}

// wrote remembers a write. A conflict is no error: the space has changed, and its event will come.
func (one *round) wrote(before, after *v1alpha1.Space, err error) bool {
	switch {
	case err == nil:
		one.memory.wrote(before, after)
		one.byName[after.Name] = after
		return true
	case apierrors.IsConflict(err):
		one.again = min(one.again, settle)
	case !apierrors.IsNotFound(err):
		one.errs = append(one.errs, fmt.Errorf("write Space %s: %w", before.Name, err))
	}
	return false
}

// tell writes an event about a space.
func (one *round) tell(space *v1alpha1.Space, kind, reason, text string) {
	one.memory.spaces[space.UID].waiting = ""
	one.events.Eventf(space, nil, kind, reason, "Place", "%s", text)
}

// tellWaiting writes an event about a space that waits for a shard, unless the last event said the same.
func (one *round) tellWaiting(space *v1alpha1.Space, why string) {
	if known := one.memory.spaces[space.UID]; known.waiting != why {
		one.tell(space, corev1.EventTypeWarning, v1alpha1.ReasonNoShard, why)
		known.waiting = why
	}
}
