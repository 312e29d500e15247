// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/syncer/engine"
	"github.com/berth-dev/berth/syncer/resources"
	"github.com/berth-dev/berth/translate"
)

// indexNodes is the index of the space's pods by the alias of their node.
const indexNodes = "berth.dev/nodes"

// syncNodes keeps a virtual node in the space for each node on which its pods run (N1). Virtual nodes show only what
// the pods show, so the host is not asked. If the admin shows all nodes, those that match the space's selector are
// added. If nodes are disabled, there are none.
func (s *Syncer) syncNodes() error {
	if !s.Sync.On(resources.Nodes) {
		s.clearNodes()
		return nil
	}
	running := s.Informers.Core().V1().Pods().Informer()
	err := running.AddIndexers(cache.Indexers{indexNodes: func(obj any) ([]string, error) {
		if v, ok := obj.(*corev1.Pod); ok && runsOnNode(v) {
			return []string{v.Spec.NodeName}, nil
		}
		return nil, nil
	}})
	if err != nil {
		return err
	}
	shown := s.Informers.Core().V1().Nodes().Informer()
	s.Work[resources.Nodes] = func(ctx context.Context, key types.NamespacedName) (time.Duration, error) {
		found, err := running.GetIndexer().IndexKeys(indexNodes, key.Name)
		if err != nil {
			return 0, err
		}
		view, wanted := s.viewOf(key.Name, len(found) > 0)
		return 0, s.showNode(ctx, shown, key.Name, view, wanted)
	}
	enqueueNode := func(name string, enqueue func(engine.Key)) {
		enqueue(engine.Key{Resource: resources.Nodes, NamespacedName: types.NamespacedName{Name: name}})
	}
	s.FromSpace(running, func(obj client.Object, enqueue func(engine.Key)) {
		if v, ok := obj.(*corev1.Pod); ok && v.Spec.NodeName != "" {
			enqueueNode(v.Spec.NodeName, enqueue)
		}
	})
	s.FromSpace(shown, func(obj client.Object, enqueue func(engine.Key)) { enqueueNode(obj.GetName(), enqueue) })
	s.followHost(enqueueNode)
	return nil
}

// runsOnNode reports whether a pod is on a node and has not finished.
func runsOnNode(v *corev1.Pod) bool {
	return v.Spec.NodeName != "" && v.Status.Phase != corev1.PodSucceeded && v.Status.Phase != corev1.PodFailed
}

func (s *Syncer) showNode(ctx context.Context, shown cache.SharedIndexInformer, name string, view translate.NodeView, wanted bool) error {
	have, exists := engine.Stored[*corev1.Node](shown, types.NamespacedName{Name: name})
	if exists && wanted {
		if translate.IsVirtualNode(have, s.release, view) {
			return nil
		}
		anew := have.DeepCopy()
		view.Restate(anew)
		if translate.IsVirtualNode(anew, s.release, view) {
			return s.VirtualAPI.Update(ctx, anew)
		}
	}
	switch {
	case exists:
		// A difference is from another release of Berth. The deletion triggers another sync.
		return client.IgnoreNotFound(s.VirtualAPI.Delete(ctx, have, client.Preconditions{UID: &have.UID}))
	case wanted:
		err := s.VirtualAPI.Create(ctx, translate.VirtualNode(name, s.release, metav1.NewTime(s.Clock.Now()), view))
		if apierrors.IsAlreadyExists(err) {
			return nil // the watch will deliver it
		}
		return err
	default:
		return nil
	}
}

// clearNodes deletes the virtual nodes that a space still has when it wakes after the admin has disabled them.
func (s *Syncer) clearNodes() {
	s.Work[resources.Nodes] = func(ctx context.Context, _ types.NamespacedName) (time.Duration, error) {
		if err := s.VirtualAPI.DeleteAllOf(ctx, &corev1.Node{}); err != nil {
			return 0, fmt.Errorf("delete virtual nodes: %w", err)
		}
		return 0, nil
	}
	s.Sources.Add(func(q *engine.Queue) (func(), func() bool, error) {
		q.Add(engine.Key{Resource: resources.Nodes})
		return func() {}, nil, nil
	})
}
