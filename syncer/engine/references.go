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

// Refer looks again at what has been, or is, referred to.
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

// usage tells which config maps or secrets of a space are to be on the host.
type usage struct {
	index string
	in    []cache.SharedIndexInformer // that have the index
	// hosted, if set, names what is on the host: all that there is in the space
	// is to be there, whether it is referred to or not.
	hosted func() []string
	// Settled, if set, reports whether all of those informers have what there is.
	Settled func() bool
}

// UsedBy is the usage of what the pods of the space refer to or, if the sync
// option says so, of everything.
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

// all names everything of the resource that is used, or is on the host.
func (u usage) all() (names []string) {
	if u.hosted != nil {
		return u.hosted()
	}
	for _, informer := range u.in {
		names = append(names, informer.GetIndexer().ListIndexFuncValues(u.index)...)
	}
	return names
}

// hostedKeys names the virtual objects that the host objects of a resource are of.
func (s *Engine) hostedKeys(resource string) (names []string) {
	for host := range hostcache.Of[client.Object](s.Host, s.Space.Name, resource) {
		if key, ok := KeyOf(resource, host); ok {
			names = append(names, key.String())
		}
	}
	return names
}

// Indexes of a space's pods and ingresses by what they refer to, as
// namespace/name.
const (
	IndexConfigMaps = "berth.dev/configmaps"
	IndexSecrets    = "berth.dev/secrets"
)

// IndexReferences lets config maps and secrets find the pods that use them:
// only those in use go to the host.
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
