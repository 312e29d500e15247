// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package hostcache

import (
	"maps"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/translate"
)

// WatchNodes makes a router keep what placements read of the host's nodes. Most changes of nodes are reports of
// kubelets, which don't matter.
func (h *Host) WatchNodes(r *Router) {
	r.Trim = func(o client.Object) client.Object {
		if node, ok := o.(*corev1.Node); ok {
			o = translate.TrimNode(node)
			Pack(o)
		}
		return o
	}
	r.Matters = func(was, is client.Object) bool {
		before, after := nodeOf(was), nodeOf(is)
		return before == nil || after == nil || !maps.Equal(before.Labels, after.Labels) || !slices.Equal(before.Spec.Taints, after.Spec.Taints) ||
			!slices.Equal(before.Status.Addresses, after.Status.Addresses)
	}
	r.Follow = func(was, is client.Object) { h.followers.changed(nodeOf(was), nodeOf(is)) }
}

// nodeOf returns nil for other objects.
func nodeOf(o client.Object) *corev1.Node {
	node, _ := o.(*corev1.Node)
	return node
}

// followers are the sleeping spaces that have work when their nodes change.
type followers struct {
	mu  sync.RWMutex
	all map[string]*follower
}

type follower struct {
	where translate.Placement
	wake  func()
}

// OnNodes calls wake when a node is added to, changes in, or is removed from the nodes of the placement where, like
// [Host.OnChange] for objects. It is for spaces with DaemonSets.
func (h *Host) OnNodes(space string, where translate.Placement, wake func()) (stop func()) {
	f := &follower{where, wake}
	h.followers.mu.Lock()
	defer h.followers.mu.Unlock()
	if h.followers.all == nil {
		h.followers.all = map[string]*follower{}
	}
	h.followers.all[space] = f
	return func() {
		h.followers.mu.Lock()
		defer h.followers.mu.Unlock()
		if h.followers.all[space] == f {
			delete(h.followers.all, space)
		}
	}
}

// changed wakes the spaces whose nodes have changed, some possibly several times. was or is may be nil.
func (f *followers) changed(was, is *corev1.Node) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	for _, o := range f.all {
		before, had := o.sees(was)
		after, has := o.sees(is)
		if had != has || has && !before.Equal(after) {
			o.wake()
		}
	}
}

func (f *follower) sees(node *corev1.Node) (translate.NodeView, bool) {
	if node == nil {
		return translate.NodeView{}, false
	}
	return f.where.View(node)
}
