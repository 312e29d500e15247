// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/syncer/hostcache"
	"github.com/berth-dev/berth/syncer/resources"
	"github.com/berth-dev/berth/translate/pod"
)

// Refer enqueues objects that are, or were, referred to.
func (s *Engine) Refer(resource string, names []types.NamespacedName, enqueue func(Key)) {
	watch := s.names[resource]
	if len(names) == 0 || watch == nil {
		return
	}
	watch.begin()
	for _, name := range names {
		enqueue(Key{Resource: resource, NamespacedName: name})
	}
}

// usage says which config maps or secrets of a space must be on the host.
type usage struct {
	index string
	in    []cache.SharedIndexInformer // that have the index
	// hosted, if set, returns what is on the host. Then all objects of the space are synced, whether something refers
	// to them or not.
	hosted func() []string
	// Settled, if set, reports whether all of these informers have synced.
	Settled func() bool
}

// UsedBy returns the usage of objects that the pods of the space refer to or, if the sync option says so, of all
// objects.
func (s *Engine) UsedBy(resource, index string, in ...cache.SharedIndexInformer) usage {
	u := usage{index: index, in: append(in, s.Informers.Core().V1().Pods().Informer())}
	if s.Sync.Value(resource) == resources.All {
		u.hosted = func() []string { return s.hostedKeys(resource) }
	}
	return u
}

func (u usage) Contains(key types.NamespacedName) (bool, error) {
	if u.hosted != nil {
		return true, nil
	}
	for _, informer := range u.in {
		keys, err := informer.GetIndexer().IndexKeys(u.index, key.String())
		if err != nil || len(keys) > 0 {
			return err == nil, err
		}
	}
	if u.Settled != nil && !u.Settled() {
		return false, ErrUnsettled
	}
	return false, nil
}

// all returns the names of all objects that are used or on the host.
func (u usage) all() (names []string) {
	if u.hosted != nil {
		return u.hosted()
	}
	for _, informer := range u.in {
		names = append(names, informer.GetIndexer().ListIndexFuncValues(u.index)...)
	}
	return names
}

// hostedKeys returns the names of the virtual objects of a resource's host objects.
func (s *Engine) hostedKeys(resource string) (names []string) {
	for host := range hostcache.Of[client.Object](s.Host, s.Space.Name, resource) {
		if key, ok := KeyOf(resource, host); ok {
			names = append(names, key.String())
		}
	}
	return names
}

// These are indexes of a space's pods and ingresses by what they refer to, as namespace/name.
const (
	IndexConfigMaps = "berth.dev/configmaps"
	IndexSecrets    = "berth.dev/secrets"
)

// IndexReferences indexes pods by the config maps and secrets that they use. Only those in use are synced.
func IndexReferences(informer cache.SharedIndexInformer) error {
	index := func(pick func(pod.References) []types.NamespacedName) cache.IndexFunc {
		return func(obj any) ([]string, error) {
			v, ok := obj.(*corev1.Pod)
			if !ok {
				return nil, nil
			}
			var out []string
			for _, ref := range pick(pod.ReferencesOf(v)) {
				out = append(out, ref.String())
			}
			return out, nil
		}
	}
	return informer.AddIndexers(cache.Indexers{
		IndexConfigMaps: index(func(r pod.References) []types.NamespacedName { return r.ConfigMaps }),
		IndexSecrets:    index(func(r pod.References) []types.NamespacedName { return r.Secrets }),
	})
}
