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

// ownNodes are the host's nodes that match the space's node selector. A host may have thousands of nodes, so a space
// keeps only these.
type ownNodes struct {
	mu      sync.RWMutex
	names   map[string]string // by alias
	aliases map[string]string // by name
}

// hostNode returns the host's node for an alias in the space.
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

// nodesNamedBy returns the host's names and the aliases of the nodes that v, if it is a pod, asks for. They are needed
// because messages of the host's admission may contain them.
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

// noteNode updates the alias of a host node that was added, changed, or deleted. concerns is false if the node neither
// is nor was one of the space's own, so that no virtual node changes. It reads and updates under one lock, because the
// watch and new subscribers call it concurrently.
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

// followHost enqueues virtual nodes when the host's nodes change. Existing nodes are known before the first pod needs
// them.
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

// viewOf returns the content of an alias's virtual node, and whether there must be one. used means that pods of the
// space run on the node.
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
