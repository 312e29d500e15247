// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package vcluster

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"

	"github.com/berth-dev/berth/quota"
	"github.com/berth-dev/berth/vcluster/storage"
	"github.com/berth-dev/berth/vcluster/usage"
)

// followUsage tells the gate what the objects of the space use.
func (p *ControlPlane) followUsage(q *storage.Quota, all informers.SharedInformerFactory) error {
	for resource, informer := range map[schema.GroupResource]cache.SharedIndexInformer{
		corev1.Resource("pods"):                   all.Core().V1().Pods().Informer(),
		corev1.Resource("persistentvolumeclaims"): all.Core().V1().PersistentVolumeClaims().Informer(),
	} {
		saw := func(before, after any) { p.saw(q, resource, before, after) }
		handled, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc:    func(o any) { saw(nil, o) },
			UpdateFunc: saw,
			DeleteFunc: func(o any) {
				if gone, ok := o.(cache.DeletedFinalStateUnknown); ok {
					o = gone.Obj
				}
				saw(o, nil)
			},
		})
		if err != nil {
			return fmt.Errorf("follow %s: %w", resource, err)
		}
		q.Gate.CountedAfter(handled.HasSyncedChecker().Done())
	}
	return nil
}

// saw tells the gate of a change.
func (p *ControlPlane) saw(q *storage.Quota, resource schema.GroupResource, before, after any) {
	was, _ := before.(runtime.Object)
	is, _ := after.(runtime.Object)
	if was != nil && is != nil && !usage.Changes(was, is) {
		return
	}
	used, err := q.Usage.Of(was)
	if err == nil {
		var uses quota.Amounts
		if uses, err = q.Usage.Of(is); err == nil {
			object := after
			if is == nil {
				object = before
			}
			q.Gate.Saw(storage.Key(resource, object), used, uses)
			return
		}
	}
	p.config.Logger.Error(err, "Could not calculate what an object uses of the quota; the host counts it", "resource", resource.String())
}

// RetryWorkloads has the controllers that create pods try again now what a quota refused, and not only when their pause is over.
func (p *ControlPlane) RetryWorkloads() {
	p.chain.informers.pool.Resync(&appsv1.ReplicaSet{}, &appsv1.StatefulSet{}, &appsv1.DaemonSet{}, &batchv1.Job{}, &corev1.ReplicationController{})
}
