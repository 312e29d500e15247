// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package publication

import (
	"context"
	"fmt"
	"maps"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/published/expression"
)

// SetUp adds the controllers to a manager. The manager's scheme must have the API of Berth, and its cache must keep the managed
// fields of Spaces.
func SetUp(m manager.Manager) error {
	compiler, err := expression.NewCompiler()
	if err != nil {
		return err
	}
	config := rest.CopyConfig(m.GetConfig())
	config.ContentType, config.AcceptContentTypes = "", "" // objects of any kind are JSON
	sources, err := dynamic.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("make client for sources of Publications: %w", err)
	}
	return setUp(m, compiler, newWatches(sources, clock.RealClock{}))
}

func setUp(m manager.Manager, compiler *expression.Compiler, w *watches) error {
	if err := m.Add(w); err != nil {
		return fmt.Errorf("set up watches of Publications: %w", err)
	}
	if err := addIndexes(context.Background(), m.GetFieldIndexer()); err != nil { // which doesn't wait
		return err
	}
	c := m.GetClient()
	concerned := builder.WithPredicates(predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		was, ok := e.ObjectOld.(*v1alpha1.Space)
		is, isSpace := e.ObjectNew.(*v1alpha1.Space)
		return !ok || !isSpace || !sameForPublications(was, is)
	}})
	err := builder.ControllerManagedBy(m).Named("publication").
		For(&v1alpha1.Publication{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&v1alpha1.PublishedObject{}, handler.EnqueueRequestsFromMapFunc(publicationOf)).
		Watches(&v1alpha1.Space{}, handler.EnqueueRequestsFromMapFunc(publicationsOf), concerned).
		WatchesRawSource(source.Func(w.enqueueTo)).
		Complete(&reconciler{client: c, mapper: m.GetRESTMapper(), watches: w, compiler: compiler})
	if err != nil {
		return fmt.Errorf("set up controller of Publications: %w", err)
	}
	labels := builder.WithPredicates(predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		return e.ObjectOld.GetUID() != e.ObjectNew.GetUID() || !maps.Equal(e.ObjectOld.GetLabels(), e.ObjectNew.GetLabels())
	}})
	tenants := builder.WithPredicates(predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		was, ok := e.ObjectOld.(*v1alpha1.Publication)
		is, isPublication := e.ObjectNew.(*v1alpha1.Publication)
		return !ok || !isPublication || !equality.Semantic.DeepEqual(was.Spec.Tenants, is.Spec.Tenants) || was.DeletionTimestamp.IsZero() != is.DeletionTimestamp.IsZero()
	}})
	err = builder.ControllerManagedBy(m).Named("space-publications").
		For(&v1alpha1.Space{}, concerned).
		Watches(&v1alpha1.Tenant{}, handler.EnqueueRequestsFromMapFunc(spacesOf(c, func(space *v1alpha1.Space, tenant string) bool {
			return space.Spec.TenantName == tenant
		})), labels).
		Watches(&v1alpha1.Publication{}, handler.EnqueueRequestsFromMapFunc(spacesOf(c, func(space *v1alpha1.Space, _ string) bool {
			return space.Spec.TenantName != ""
		})), tenants).
		Watches(&v1alpha1.PublishedObject{}, handler.EnqueueRequestsFromMapFunc(receiversOf(c)), builder.WithPredicates(publicationChanged())).
		Complete(&spaceReconciler{client: c, events: m.GetEventRecorder("berth-operator")})
	if err != nil {
		return fmt.Errorf("set up controller of the publications of Spaces: %w", err)
	}
	return nil
}

func publicationOf(_ context.Context, object client.Object) []reconcile.Request {
	if name := object.GetLabels()[v1alpha1.LabelPublication]; name != "" {
		return []reconcile.Request{{NamespacedName: client.ObjectKey{Name: name}}}
	}
	return nil
}

func publicationsOf(_ context.Context, object client.Object) (requests []reconcile.Request) {
	if space, ok := object.(*v1alpha1.Space); ok {
		for _, name := range space.Spec.Publications {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKey{Name: name}})
		}
	}
	return requests
}

// spacesOf returns a function that maps an object to the Spaces that it concerns.
func spacesOf(c client.Client, concerns func(space *v1alpha1.Space, name string) bool) handler.MapFunc {
	return func(ctx context.Context, object client.Object) (requests []reconcile.Request) {
		list := &v1alpha1.SpaceList{}
		if err := c.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
			return nil // the cache has no errors but that of a manager that stops
		}
		for i := range list.Items {
			if concerns(&list.Items[i], object.GetName()) {
				requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKey{Name: list.Items[i].Name}})
			}
		}
		return requests
	}
}
