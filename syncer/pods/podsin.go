// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/syncer/engine"
	"github.com/berth-dev/berth/syncer/resources"
)

// podsIn is the resource of keys that stand for all pods of a namespace. A change that concerns all of them enqueues
// one key, however many pods there are, and however often it happens before the key is processed.
const podsIn = "pods of a namespace"

// enqueuePods enqueues the key for all pods of a namespace.
func (s *Syncer) enqueuePods(namespace string, enqueue func(engine.Key)) {
	if s.Sync.On(resources.Pods) {
		enqueue(engine.Key{Resource: podsIn, NamespacedName: types.NamespacedName{Namespace: namespace}})
	}
}

// enqueuePodsIn processes a key of podsIn: it enqueues all pods of the namespace.
func (s *Syncer) enqueuePodsIn(ctx context.Context, in types.NamespacedName) (time.Duration, error) {
	var err error
	s.Compute(ctx, func() {
		var all []*corev1.Pod
		all, err = s.Informers.Core().V1().Pods().Lister().Pods(in.Namespace).List(labels.Everything())
		for _, pod := range all {
			s.Queue.Add(engine.Key{Resource: resources.Pods, NamespacedName: client.ObjectKeyFromObject(pod)})
		}
	})
	return 0, err
}
