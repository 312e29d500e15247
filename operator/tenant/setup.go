// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"context"
	"fmt"
	"time"

	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/berth-dev/berth/api/v1alpha1"
)

const (
	// parentField and tenantField are fields that objects are listed by, both from the cache and from the host.
	parentField, tenantField = "spec.parent", "spec.tenantName"
	// reconcilers is how many tenants are reconciled at once.
	reconcilers = 16
	// firstRetry and lastRetry limit the pause after an error.
	firstRetry, lastRetry = 50 * time.Millisecond, time.Minute
)

// SetUp adds the controller of Tenants to a manager.
func SetUp(m manager.Manager) error {
	ctx := context.Background() // of the registration of indexes, which does not wait
	if err := m.GetFieldIndexer().IndexField(ctx, &v1alpha1.Tenant{}, parentField, func(o client.Object) []string {
		return nonempty(o.(*v1alpha1.Tenant).Spec.Parent)
	}); err != nil {
		return fmt.Errorf("index tenants: %w", err)
	}
	if err := m.GetFieldIndexer().IndexField(ctx, &v1alpha1.Space{}, tenantField, func(o client.Object) []string {
		return nonempty(o.(*v1alpha1.Space).Spec.TenantName)
	}); err != nil {
		return fmt.Errorf("index spaces: %w", err)
	}
	r := &reconciler{client: m.GetClient(), live: m.GetAPIReader(), events: m.GetEventRecorder("berth-operator")}
	err := builder.ControllerManagedBy(m).Named("tenant").
		Watches(&v1alpha1.Tenant{}, r.tenantEvents()).
		Watches(&v1alpha1.Space{}, r.spaceEvents()).
		Watches(&v1alpha1.TenantOwner{}, r.ownerEvents()).
		Watches(&v1alpha1.QuotaLedger{}, r.ledgerEvents()).
		Watches(&v1alpha1.BerthConfiguration{}, r.configurationEvents()).
		WatchesRawSource(source.Func(func(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
			r.enqueue = func(names ...string) { addFirst(queue, names...) }
			return nil
		})).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: reconcilers,
			RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](firstRetry, lastRetry),
		}).
		Complete(r)
	if err != nil {
		return fmt.Errorf("make controller of tenants: %w", err)
	}
	return nil
}

func nonempty(value string) []string {
	if value == "" {
		return nil
	}
	return []string{value}
}

// queue is that of the controller.
type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

func add(q queue, names ...string) {
	for _, one := range requests(names...) {
		q.Add(one)
	}
}

// rightsPriority is that of tenants whose rights may have changed: their spaces are written before the statuses of others, also if a
// write has to be repeated.
const rightsPriority = 10

// addFirst adds tenants whose rights may have changed.
func addFirst(q queue, names ...string) {
	if first, ok := q.(priorityqueue.PriorityQueue[request]); ok {
		first.AddWithOpts(priorityqueue.AddOpts{Priority: ptr.To(rightsPriority)}, requests(names...)...)
		return
	}
	add(q, names...)
}

type request = reconcile.Request

func requests(names ...string) (all []request) {
	for _, name := range names {
		if name != "" {
			all = append(all, request{NamespacedName: client.ObjectKey{Name: name}})
		}
	}
	return all
}
