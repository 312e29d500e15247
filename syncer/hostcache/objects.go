// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package hostcache

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/syncer/resources"
)

// Objects returns how many host objects each space has, by resource. Only classes that tenants exported count, which
// have resources of their own.
func (h *Host) Objects() map[string]map[string]int {
	count := map[string]map[string]int{}
	for resource, f := range h.Routers {
		if resources.Of(resource).Class || resource == Quotas {
			continue
		}
		for _, item := range f.All() {
			o, ok := item.(client.Object)
			if !ok {
				continue
			}
			space := f.SpaceOf(o)
			if space == "" || space == EverySpace {
				continue
			}
			if count[space] == nil {
				count[space] = map[string]int{}
			}
			count[space][resource]++
		}
	}
	return count
}

// VolumesBeingReclaimed returns how many of the host's volumes are bound to claims of a space, and are deleted when the
// claims are gone.
func (h *Host) VolumesBeingReclaimed(space string) (count int) {
	f := h.Routers[resources.Volumes]
	if f == nil {
		return 0
	}
	for _, item := range f.All() {
		if v, ok := item.(*corev1.PersistentVolume); ok && f.SpaceOf(v) == space && v.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimDelete {
			count++
		}
	}
	return count
}

// Object identifies a host object.
type Object struct {
	Resource string
	types.NamespacedName
}
