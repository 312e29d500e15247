// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package share

import (
	"context"
	"fmt"
	"reflect"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	ctrlmanager "sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/operator/publication"
	"github.com/berth-dev/berth/sharing"
)

// sharedBy is the index of PublishedObjects by the space that shares them.
const sharedBy = "share.sharedBy"

// SetUp adds the controller of shared objects.
func SetUp(m ctrlmanager.Manager) error {
	spaces := builder.WithPredicates(predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		was, ok := e.ObjectOld.(*v1alpha1.Space)
		is, isSpace := e.ObjectNew.(*v1alpha1.Space)
		return !ok || !isSpace || was.UID != is.UID || !reflect.DeepEqual(sharing.SpaceOf(was), sharing.SpaceOf(is)) ||
			was.DeletionTimestamp.IsZero() != is.DeletionTimestamp.IsZero()
	}})
	metadata := &metav1.PartialObjectMetadata{}
	metadata.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("SharedObject"))
	err := m.GetFieldIndexer().IndexField(context.Background(), &v1alpha1.PublishedObject{}, sharedBy, func(o client.Object) []string {
		return []string{o.GetLabels()[v1alpha1.LabelSharedBy]}
	})
	if err != nil {
		return fmt.Errorf("index PublishedObjects by their space: %w", err)
	}
	pace := newPace()
	err = builder.ControllerManagedBy(m).Named("share").
		For(&v1alpha1.Space{}, spaces).
		Watches(&v1alpha1.Space{}, handler.EnqueueRequestsFromMapFunc(spacesAbove(m.GetClient())), spaces). // which begin or end to receive
		WatchesMetadata(metadata, pace.enqueue(func(o client.Object) string { return sharing.SpaceIn(o.GetNamespace()) })).
		Watches(&v1alpha1.PublishedObject{}, pace.enqueue(func(o client.Object) string { return o.GetLabels()[v1alpha1.LabelSharedBy] })).
		Complete(&reconciler{client: m.GetClient(), live: m.GetAPIReader(), events: m.GetEventRecorder("berth-operator"), clock: clock.RealClock{}, pace: pace})
	if err != nil {
		return fmt.Errorf("set up controller of shared objects: %w", err)
	}
	return nil
}

// spacesAbove returns the spaces of the tenants from which the tenant of a space inherits.
func spacesAbove(c client.Client) handler.MapFunc {
	return func(ctx context.Context, object client.Object) (requests []reconcile.Request) {
		space, ok := object.(*v1alpha1.Space)
		if !ok {
			return nil
		}
		for _, tenant := range sharing.SpaceOf(space).InheritsFrom {
			above := &v1alpha1.SpaceList{}
			if err := c.List(ctx, above, client.MatchingFields{publication.SpaceTenant: tenant}, client.UnsafeDisableDeepCopy); err != nil {
				return nil // the cache has no errors but that of a manager that stops
			}
			for i := range above.Items {
				requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&above.Items[i])})
			}
		}
		return requests
	}
}

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// enqueue enqueues the space of an object after its delay.
func (p *pace) enqueue(spaceOf func(client.Object) string) handler.EventHandler {
	add := func(o client.Object, q queue) {
		if name := spaceOf(o); name != "" {
			q.AddAfter(reconcile.Request{NamespacedName: client.ObjectKey{Name: name}}, p.delay(name))
		}
	}
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, q queue) { add(e.Object, q) },
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q queue) { add(e.ObjectNew, q) },
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, q queue) { add(e.Object, q) },
	}
}

// Strip removes from the metadata of SharedObjects what the controller does not need, before the cache stores it. A process that was
// taken over can make each of these fields large.
func Strip(object any) (any, error) {
	if o, ok := object.(metav1.Object); ok {
		o.SetManagedFields(nil)
		o.SetAnnotations(nil)
		o.SetLabels(nil)
		o.SetFinalizers(nil)
		o.SetOwnerReferences(nil)
	}
	return object, nil
}
