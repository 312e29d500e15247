// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package spacequota

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/berth-dev/berth/api/v1alpha1"
)

// followLedgers watches the metadata of all ledgers until ctx ends: the operator changes limits, and other platforms change shares.
func (q *Quotas) followLedgers(ctx context.Context) error {
	config := rest.CopyConfig(q.Host)
	config.QPS = -1 // the host's API priority and fairness limits the requests
	client, err := metadata.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("make client of quota ledgers: %w", err)
	}
	informer := metadatainformer.NewFilteredMetadataInformer(client, v1alpha1.GroupVersion.WithResource("quotaledgers"), metav1.NamespaceAll, 0, cache.Indexers{}, nil).Informer()
	if err := informer.SetTransform(slim); err != nil {
		return fmt.Errorf("watch quota ledgers: %w", err)
	}
	_, err = informer.AddEventHandler(cache.ResourceEventHandlerDetailedFuncs{AddFunc: func(o any, initial bool) {
		if is, ok := o.(metav1.Object); ok && !initial {
			q.limitChanged(is.GetName())
			q.startWaiting(is.GetName())
		}
	}, UpdateFunc: func(before, after any) {
		was, _ := before.(metav1.Object)
		is, _ := after.(metav1.Object)
		if was == nil || is == nil || was.GetResourceVersion() == is.GetResourceVersion() {
			return
		}
		q.ledgers.Freed(is.GetName(), "")
		q.queue.AddAfter(task{finish, is.GetName()}, settlePause)
		if was.GetGeneration() != is.GetGeneration() {
			q.limitChanged(is.GetName())
		}
	}})
	if err != nil {
		return fmt.Errorf("watch quota ledgers: %w", err)
	}
	informer.RunWithContext(ctx)
	return nil
}

// slim keeps of a ledger what tells whether it has changed.
func slim(o any) (any, error) {
	if object, ok := o.(*metav1.PartialObjectMetadata); ok {
		object.ObjectMeta = metav1.ObjectMeta{Name: object.Name, UID: object.UID, ResourceVersion: object.ResourceVersion, Generation: object.Generation}
	}
	return o, nil
}

// limitChanged is called when the limit of a tenant has changed: its spaces may be limited in other resources, a lower limit has to be
// taken back, and a higher one may allow what was refused.
func (q *Quotas) limitChanged(tenant string) {
	q.queue.Add(task{trim, tenant})
	for _, space := range q.Spaces() {
		if of, _ := q.Of(space); of == tenant {
			q.queue.Add(task{place, space})
			if q.Limited != nil {
				q.Limited(space)
			}
		}
	}
	q.retryHungry(tenant)
}

// startWaiting has the spaces of a tenant start that could not, because the tenant had no ledger.
func (q *Quotas) startWaiting(tenant string) {
	for _, space := range q.Spaces() {
		if of, _ := q.Of(space); of == tenant {
			q.Start(space)
		}
	}
}
