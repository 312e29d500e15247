// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package syncer

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/translate"
)

// Indexes of a space's pods by what they refer to, as namespace/name.
const (
	indexConfigMaps = "berth.dev/configmaps"
	indexSecrets    = "berth.dev/secrets"
)

// indexReferences lets config maps and secrets find the pods that use them:
// only those in use go to the host.
func indexReferences(informer cache.SharedIndexInformer) error {
	index := func(pick func(translate.References) []types.NamespacedName) cache.IndexFunc {
		return func(obj any) ([]string, error) {
			pod, ok := obj.(*corev1.Pod)
			if !ok {
				return nil, nil
			}
			var out []string
			for _, ref := range pick(translate.PodReferences(pod)) {
				out = append(out, ref.String())
			}
			return out, nil
		}
	}
	return informer.AddIndexers(cache.Indexers{
		indexConfigMaps: index(func(r translate.References) []types.NamespacedName { return r.ConfigMaps }),
		indexSecrets:    index(func(r translate.References) []types.NamespacedName { return r.Secrets }),
	})
}

// usage tells what the pods of a space refer to.
type usage struct {
	pods  cache.SharedIndexInformer
	index string
}

func (s *Syncer) usedBy(index string) usage {
	return usage{s.informers.Core().V1().Pods().Informer(), index}
}

func (u usage) contains(key types.NamespacedName) (bool, error) {
	keys, err := u.pods.GetIndexer().IndexKeys(u.index, key.String())
	return len(keys) > 0, err
}

// all names everything of the kind that a pod refers to.
func (u usage) all() []string { return u.pods.GetIndexer().ListIndexFuncValues(u.index) }

// enqueueReferences looks again at what a pod that came, changed or went refers to.
func (s *Syncer) enqueueReferences(v *corev1.Pod, enqueue func(Key)) {
	refs := translate.PodReferences(v)
	for kind, names := range map[string][]types.NamespacedName{configMaps: refs.ConfigMaps, secrets: refs.Secrets} {
		if len(names) > 0 {
			s.names[kind].begin()
		}
		for _, name := range names {
			enqueue(Key{Kind: kind, NamespacedName: name})
		}
	}
}

func compareNames(a, b client.Object) int { return strings.Compare(a.GetName(), b.GetName()) }
