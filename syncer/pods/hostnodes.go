// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"sync"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/syncer/engine"
	"github.com/berth-dev/berth/syncer/hostcache"
	"github.com/berth-dev/berth/syncer/resources"
	"github.com/berth-dev/berth/translate"
)

// ownNodes are the host's nodes that the space's node selector leaves: of the
// thousands that a host may have, a space holds no others.
type ownNodes struct {
	mu      sync.RWMutex
	names   map[string]string // by alias
	aliases map[string]string // by name
}

// hostNode finds the host's node of an alias of the space's.
func (s *Syncer) hostNode(alias string) (node *corev1.Node, ok bool) {
	s.ownNodes.mu.RLock()
	name, ok := s.ownNodes.names[alias]
	s.ownNodes.mu.RUnlock()
	if !ok {
		return nil, false
	}
	return hostcache.Get[*corev1.Node](s.Host, resources.Nodes, "", name)
}

func (s *Syncer) hostNodeName(alias string) (name string, ok bool) {
	node, ok := s.hostNode(alias)
	if !ok {
		return "", false
	}
	return node.Name, true
}

// nodesNamedBy are the host's names of the nodes that v asks for, if it is a pod,
// each with its alias: the host's admission may speak of what it was shown.
func (s *Syncer) nodesNamedBy(v client.Object) (names [][2]string) {
	pod, ok := v.(*corev1.Pod)
	if !ok {
		return nil
	}
	for _, alias := range translate.NamedNodes(pod) {
		if name, ok := s.hostNodeName(alias); ok {
			names = append(names, [2]string{name, alias})
		}
	}
	return names
}

// noteNode keeps the alias of a node of the host's that came, changed or went.
// concerns is false if it neither is nor was among the space's own: then nothing
// that a virtual node tells has changed. It looks and notes at once, as the watch and
// who subscribes to it call at the same time.
func (s *Syncer) noteNode(name string) (alias string, concerns bool) {
	own := &s.ownNodes
	own.mu.Lock()
	defer own.mu.Unlock()
	node, there := hostcache.Get[*corev1.Node](s.Host, resources.Nodes, "", name)
	alias, had := own.aliases[name]
	has := there && s.where.Selects(node)
	switch {
	case has && !had:
		if own.names == nil {
			own.names, own.aliases = map[string]string{}, map[string]string{}
		}
		alias = s.Space.NodeAlias(name)
		own.names[alias], own.aliases[name] = name, alias
	case had && !has:
		delete(own.names, alias)
		delete(own.aliases, name)
	}
	return alias, has || had
}

// followHost leads what happens to the host's nodes to virtual nodes. What is there is
// known before the first pod asks for it.
func (s *Syncer) followHost(enqueueNode func(alias string, enqueue func(engine.Key))) {
	if s.Sync.Value(resources.Nodes) != resources.All {
		return
	}
	for _, name := range s.Host.Routers[resources.Nodes].Keys() {
		s.noteNode(name)
	}
	s.FromHost(resources.Nodes, func(obj client.Object, enqueue func(engine.Key)) {
		if alias, concerns := s.noteNode(obj.GetName()); concerns {
			enqueueNode(alias, enqueue)
		}
	})
}

// viewOf is what the virtual node of an alias says of its node, and whether there is
// to be one. used tells that the space's pods run on it.
func (s *Syncer) viewOf(alias string, used bool) (view translate.NodeView, wanted bool) {
	if s.Sync.Value(resources.Nodes) != resources.All {
		return translate.NodeView{}, used
	}
	node, ok := s.hostNode(alias)
	if !ok {
		return translate.NodeView{Closed: corev1.TaintEffectNoExecute}, used
	}
	view, is := s.where.View(node)
	return view, is || used
}
