// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package shards

import (
	"context"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	ctrlmanager "sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/translate"
)

const (
	// settle is how long a change that is not urgent waits for the next ones.
	settle = time.Second
	// firstRetry and lastRetry limit the pause after an error.
	firstRetry, lastRetry = 50 * time.Millisecond, 10 * time.Second
)

// Cached returns what the cache of the manager must hold: the Shards and Leases of a namespace.
func Cached(namespace string) map[client.Object]cache.ByObject {
	one := cache.ByObject{Namespaces: map[string]cache.Config{namespace: {}}, Transform: cache.TransformStripManagedFields()}
	return map[client.Object]cache.ByObject{&v1alpha1.Shard{}: one, &coordinationv1.Lease{}: one}
}

// SetUp adds the controller to a manager whose cache holds what [Cached] returns. Its requests name platforms.
func SetUp(m ctrlmanager.Manager) error {
	r := newReconciler(m.GetClient(), m.GetEventRecorder("berth-operator"), clock.RealClock{})
	err := builder.ControllerManagedBy(m).Named("shards").
		Watches(&v1alpha1.Space{}, spaceEvents()).
		Watches(&v1alpha1.Shard{}, shardEvents()).
		Watches(&coordinationv1.Lease{}, r.leaseEvents()).
		WithOptions(controller.Options{RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](firstRetry, lastRetry)}).
		Complete(r)
	if err != nil {
		return fmt.Errorf("set up controller of shards: %w", err)
	}
	return nil
}

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

func platform(name string) reconcile.Request {
	return reconcile.Request{NamespacedName: client.ObjectKey{Name: name}}
}

// spaceEvents enqueues the platform of a space, at once if the space waits for a decision.
func spaceEvents() handler.EventHandler {
	add := func(o client.Object, q queue) {
		if space := o.(*v1alpha1.Space); waits(space) {
			q.Add(platform(space.Spec.PlatformName))
		} else {
			q.AddAfter(platform(space.Spec.PlatformName), settle)
		}
	}
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, q queue) { add(e.Object, q) },
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, q queue) {
			q.AddAfter(platform(e.Object.(*v1alpha1.Space).Spec.PlatformName), settle)
		},
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q queue) {
			if before, after := e.ObjectOld.(*v1alpha1.Space), e.ObjectNew.(*v1alpha1.Space); relevant(before) != relevant(after) {
				add(after, q)
			}
		},
	}
}

// waits reports whether a decision about a space is due.
func waits(s *v1alpha1.Space) bool {
	_, asked := s.Annotations[v1alpha1.AnnotationMoveTo]
	return s.DeletionTimestamp.IsZero() && (asked || s.Status.Shard == "" && s.Annotations[translate.AnnotationStore] == "")
}

// relevant are the fields of a space on which decisions depend.
func relevant(s *v1alpha1.Space) any {
	to, asked := s.Annotations[v1alpha1.AnnotationMoveTo]
	return [...]any{
		s.UID, s.Spec.PlatformName, s.Spec.TenantName, labelsOf(s).String(), s.Status.Shard, s.Status.MovingTo, awake(s), s.Annotations[translate.AnnotationStore] != "", asked, to, s.DeletionTimestamp.IsZero(),
	}
}

// shardEvents enqueues the platform of a shard, unless only its numbers have changed, which are read from time to time.
func shardEvents() handler.EventHandler {
	add := func(o client.Object, q queue) { q.Add(platform(o.(*v1alpha1.Shard).Spec.PlatformName)) }
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, q queue) { add(e.Object, q) },
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, q queue) { add(e.Object, q) },
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q queue) {
			before, after := e.ObjectOld.(*v1alpha1.Shard), e.ObjectNew.(*v1alpha1.Shard)
			if before.Generation != after.Generation || before.UID != after.UID || before.Status.SpaceSelector != after.Status.SpaceSelector ||
				before.Status.KubernetesVersion != after.Status.KubernetesVersion || reportsReady(before) != reportsReady(after) || reportsDraining(before) != reportsDraining(after) {
				add(after, q)
			}
		},
	}
}

func reportsDraining(s *v1alpha1.Shard) bool {
	return meta.IsStatusConditionTrue(s.Status.Conditions, v1alpha1.ConditionDraining)
}

func reportsReady(s *v1alpha1.Shard) bool {
	return s.DeletionTimestamp.IsZero() && meta.IsStatusConditionTrue(s.Status.Conditions, v1alpha1.ConditionReady)
}

// leaseEvents notes the Leases of shards, and enqueues the platform of a shard that has come to life. That one is no longer alive is found
// by the reconciler, which looks when the next Lease ends.
func (r *reconciler) leaseEvents() handler.EventHandler {
	note := func(ctx context.Context, o client.Object, atStart bool, q queue) {
		if !r.liveness.note(o.(*coordinationv1.Lease), atStart) {
			return
		}
		shard := &v1alpha1.Shard{}
		if err := r.client.Get(ctx, client.ObjectKeyFromObject(o), shard); err == nil { // otherwise its event will come
			q.Add(platform(shard.Spec.PlatformName))
		}
	}
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q queue) { note(ctx, e.Object, e.IsInInitialList, q) },
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) { note(ctx, e.ObjectNew, false, q) },
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, _ queue) { r.liveness.forget(e.Object.GetName()) },
	}
}
