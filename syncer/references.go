// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package syncer

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/berth-dev/berth/syncer/resources"
	"github.com/berth-dev/berth/translate/pod"
)

// Indexes of a space's pods and ingresses by what they refer to, as
// namespace/name.
const (
	indexConfigMaps = "berth.dev/configmaps"
	indexSecrets    = "berth.dev/secrets"
)

// indexReferences lets config maps and secrets find the pods that use them:
// only those in use go to the host.
func indexReferences(informer cache.SharedIndexInformer) error {
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
		indexConfigMaps: index(func(r pod.References) []types.NamespacedName { return r.ConfigMaps }),
		indexSecrets:    index(func(r pod.References) []types.NamespacedName { return r.Secrets }),
	})
}

// enqueueReferences looks again at what a pod that came, changed or went refers to.
func (s *Engine) enqueueReferences(v *corev1.Pod, enqueue func(Key)) {
	refs := pod.ReferencesOf(v)
	s.refer(resources.ConfigMaps, refs.ConfigMaps, enqueue)
	s.refer(resources.Secrets, refs.Secrets, enqueue)
}
