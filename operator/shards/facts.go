// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package shards

import (
	"cmp"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/utils/ptr"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/operator/placement"
	"github.com/berth-dev/berth/translate"
)

// shardOf returns what placement needs to know about a shard.
func shardOf(s *v1alpha1.Shard, ready, lost, dead bool) placement.Shard {
	one := placement.Shard{
		Name: s.Name, Zone: cmp.Or(s.Labels[corev1.LabelTopologyZone], s.Status.Zone), Ready: ready, Lost: lost, Dead: lost || dead,
		Unschedulable: ptr.Deref(s.Spec.Unschedulable, false), Draining: ptr.Deref(s.Spec.Drain, false) || reportsDraining(s), Awake: int(ptr.Deref(s.Status.Awake, 0)), Retained: s.Status.Retained, DedicatedMax: s.Status.DedicatedMax,
	}
	one.Minor, one.Selects = minorOf(s.Status.KubernetesVersion), selectorOf(s)
	if s.Status.Memory != nil {
		one.Memory = s.Status.Memory.Value()
	}
	if s.Status.MemoryLimit != nil {
		one.MemoryLimit = s.Status.MemoryLimit.Value()
	}
	return one
}

// minorOf returns the minor version of a version of Kubernetes; 0 if there is none.
func minorOf(kubernetes string) uint {
	v, err := version.ParseGeneric(kubernetes)
	if err != nil {
		return 0
	}
	return v.Minor()
}

// selectorOf returns what a shard selects spaces by; nil if it has no selector. One that isn't valid selects nothing.
func selectorOf(s *v1alpha1.Shard) labels.Selector {
	if s.Status.SpaceSelector == "" {
		return nil
	}
	selector, err := labels.Parse(s.Status.SpaceSelector)
	if err != nil {
		return labels.Nothing()
	}
	return selector
}

// labelsOf returns what shards select a space by.
func labelsOf(s *v1alpha1.Space) labels.Set {
	if _, has := s.Labels[v1alpha1.LabelKubernetesVersion]; !has && s.Spec.KubernetesVersion == "" {
		return s.Labels
	}
	of := labels.Set{}
	maps.Copy(of, s.Labels)
	delete(of, v1alpha1.LabelKubernetesVersion)
	if s.Spec.KubernetesVersion != "" {
		of[v1alpha1.LabelKubernetesVersion] = s.Spec.KubernetesVersion
	}
	return of
}

// spaceOf returns what placement needs to know about a space.
func spaceOf(s *v1alpha1.Space, moved time.Time) placement.Space {
	return placement.Space{
		Name: s.Name, Tenant: s.Spec.TenantName, Shard: s.Status.Shard, MovingTo: s.Status.MovingTo, Awake: awake(s),
		Minor: minorOf(s.Spec.KubernetesVersion), Labels: labelsOf(s), Portable: portable(s), Dedicated: dedicated(s), Busy: busy(s), New: s.Annotations[translate.AnnotationStore] == "", Moved: moved, Fixed: fixed(s),
	}
}

// fixed reports whether a space can't move.
func fixed(s *v1alpha1.Space) bool {
	ready := meta.FindStatusCondition(s.Status.Conditions, v1alpha1.ConditionReady)
	return ready != nil && ready.Reason == v1alpha1.ReasonStoreMissing
}

// dedicated reports whether a space has a process of its own, or is to have one.
func dedicated(s *v1alpha1.Space) bool {
	return s.Spec.Isolation == v1alpha1.Dedicated || s.Status.Isolation == v1alpha1.Dedicated
}

// awake reports whether a space takes memory of its shard: in particular, it will once it is created, but does not if it sleeps or has
// a pod of its own.
func awake(s *v1alpha1.Space) bool {
	return s.Status.State != v1alpha1.SpaceAsleep && s.Status.Isolation != v1alpha1.Dedicated
}

// busy reports whether a space has a process of its own that isn't asleep.
func busy(s *v1alpha1.Space) bool {
	return s.Status.State != v1alpha1.SpaceAsleep && s.Status.Isolation == v1alpha1.Dedicated
}

// portable reports whether another shard can serve a space whose shard is dead: its store, and its keys, are in a database server. What is
// left of a space that is being deleted is for its shard.
func portable(s *v1alpha1.Space) bool {
	return s.Spec.Store.InServer() && s.DeletionTimestamp.IsZero()
}

// memory is what the controller remembers about a platform. After a restart, it is empty.
type memory struct {
	spaces map[types.UID]*remembered
	// balanced is when a space last moved from or to a shard for balance.
	balanced map[string]time.Time
	// failedOver is how many spaces failed over in the second that began at failingSince.
	failedOver   int
	failingSince time.Time
}

// remembered is what the controller remembers about a space.
type remembered struct {
	// written is the space as the controller has written it, and read the version on which the write is based. The cache may be behind.
	written *v1alpha1.Space
	read    string
	// shard and movingTo are what the space had, and moved is when one of them changed.
	shard, movingTo string
	moved           time.Time
	// waiting is why the space has no shard, as the last event says.
	waiting string
}

func newMemory() *memory {
	return &memory{spaces: map[types.UID]*remembered{}, balanced: map[string]time.Time{}}
}

// latest returns the space as the controller wrote it, as long as the cache has what it was before.
func (m *memory) latest(space *v1alpha1.Space) *v1alpha1.Space {
	known := m.spaces[space.UID]
	if known == nil || known.written == nil {
		return space
	}
	if known.read == space.ResourceVersion {
		return known.written
	}
	known.written, known.read = nil, ""
	return space
}

// wrote remembers a write. A space that is written twice before the cache has either is based on the first version.
func (m *memory) wrote(before, after *v1alpha1.Space) {
	known := m.spaces[before.UID]
	if known.written == nil || known.written.ResourceVersion != before.ResourceVersion {
		known.read = before.ResourceVersion
	}
	known.written = after
}

// note remembers a space, and returns when it last moved: at the latest at the given start if it isn't known.
func (m *memory) note(space *v1alpha1.Space, now, start time.Time) time.Time {
	known := m.spaces[space.UID]
	if known == nil {
		known = &remembered{shard: space.Status.Shard, movingTo: space.Status.MovingTo, moved: start}
		m.spaces[space.UID] = known
	}
	if known.shard != space.Status.Shard || known.movingTo != space.Status.MovingTo {
		known.shard, known.movingTo, known.moved = space.Status.Shard, space.Status.MovingTo, now
	}
	return known.moved
}

// prune forgets spaces that are gone.
func (m *memory) prune(spaces map[string]*v1alpha1.Space) {
	if len(m.spaces) == len(spaces) {
		return
	}
	there := make(map[types.UID]bool, len(spaces))
	for _, space := range spaces {
		there[space.UID] = true
	}
	for uid := range m.spaces {
		if !there[uid] {
			delete(m.spaces, uid)
		}
	}
}
