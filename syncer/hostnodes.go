// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package syncer

import (
	"maps"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/syncer/kinds"
	"github.com/berth-dev/berth/translate"
)

// watchNodes has a fanout hold the host's nodes: what placements look at of each,
// which most of a node's changes, its kubelet's reports, are not about.
func (h *Host) watchNodes(f *fanout, labels []string) {
	f.trim = func(o client.Object) client.Object {
		if node, ok := o.(*corev1.Node); ok {
			o = translate.TrimNode(node, labels)
			pack(o)
		}
		return o
	}
	f.matters = func(was, is client.Object) bool {
		before, _ := was.(*corev1.Node)
		after, _ := is.(*corev1.Node)
		if before != nil && after != nil && maps.Equal(before.Labels, after.Labels) && slices.Equal(before.Spec.Taints, after.Spec.Taints) {
			return false
		}
		h.followers.changed(before, after)
		return true
	}
}

// hostNode finds the host's node of a pseudonym of the space's.
func (s *Syncer) hostNode(pseudonym string) (node *corev1.Node, ok bool) {
	name, ok := s.hostNodes.Load(pseudonym)
	if !ok {
		return nil, false
	}
	return cached[*corev1.Node](s.host, nodes, "", name.(string))
}

func (s *Syncer) hostNodeName(pseudonym string) (name string, ok bool) {
	node, ok := s.hostNode(pseudonym)
	if !ok {
		return "", false
	}
	return node.Name, true
}

// noteNode keeps the pseudonym of a node of the host's that came, changed or went.
func (s *Syncer) noteNode(name string) (pseudonym string) {
	pseudonym = s.space.PseudoNode(name)
	if _, there := cached[*corev1.Node](s.host, nodes, "", name); there {
		s.hostNodes.Store(pseudonym, name)
	} else {
		s.hostNodes.Delete(pseudonym)
	}
	return pseudonym
}

// followHost leads what happens to the host's nodes to stand-ins. What is there is
// known before the first pod asks for it.
func (s *Syncer) followHost(enqueueNode func(pseudonym string, enqueue func(Key))) {
	if s.host.sync.Value(nodes) != kinds.All {
		return
	}
	for _, name := range s.host.fanouts[nodes].keys() {
		s.noteNode(name)
	}
	s.fromHost(nodes, func(obj client.Object, enqueue func(Key)) { enqueueNode(s.noteNode(obj.GetName()), enqueue) })
}

// viewOf is what the stand-in of a pseudonym says of its node, and whether there is
// to be one. used tells that the space's pods run on it.
func (s *Syncer) viewOf(pseudonym string, used bool) (view translate.NodeView, wanted bool) {
	if s.host.sync.Value(nodes) != kinds.All {
		return translate.NodeView{}, used
	}
	node, ok := s.hostNode(pseudonym)
	if !ok {
		return translate.NodeView{Closed: corev1.TaintEffectNoExecute}, used
	}
	view, is := s.where.View(node)
	return view, is || used
}

// followers are the spaces that sleep and want to know when their nodes change.
type followers struct {
	mu  sync.RWMutex
	all map[string]*follower
}

type follower struct {
	where translate.Placement
	wake  func()
}

// OnNodes calls wake when a node of the host's comes to, changes for, or goes from
// the space whose pods run where it says, as [Host.OnChange] does for its objects.
// It is for spaces that have something to do then: DaemonSets.
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

// changed wakes the spaces that see another node than before, each maybe several
// times. was or is may be nil.
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
