// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"context"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/quota"
)

// refusals are what quotas have refused to spaces, until events say so.
type refusals struct {
	mu sync.Mutex
	of map[string]map[corev1.ResourceName]*quota.Exceeded // by space
}

// add notes a refusal, of each resource the last one.
func (r *refusals) add(space string, why *quota.Exceeded) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.of == nil {
		r.of = map[string]map[corev1.ResourceName]*quota.Exceeded{}
	}
	if r.of[space] == nil {
		r.of[space] = map[corev1.ResourceName]*quota.Exceeded{}
	}
	for name := range why.Limited {
		r.of[space][name] = why.Only(name)
	}
}

// take returns the refusals of a space, and forgets them.
func (r *refusals) take(space string) map[corev1.ResourceName]*quota.Exceeded {
	r.mu.Lock()
	defer r.mu.Unlock()
	taken := r.of[space]
	delete(r.of, space)
	return taken
}

// refused has an event say what a quota refused to a space. It does not block.
func (m *Manager) refused(space string, why *quota.Exceeded) {
	m.refusals.add(space, why)
	m.changed(space)
}

// recordRefusals records an event about each resource of which a quota refused something to a space, at most one in a minute.
func (m *Manager) recordRefusals(ctx context.Context, object *v1alpha1.Space) {
	taken := m.refusals.take(object.Name)
	for _, name := range slices.Sorted(maps.Keys(taken)) {
		hash := fnv.New32a() // names of resources have characters that those of objects can't have
		_, _ = hash.Write([]byte(name))
		m.recordEvent(ctx, object, corev1.EventTypeWarning, v1alpha1.ReasonQuotaExceeded, fmt.Sprintf("quota-%x-%x", hash.Sum32(), time.Now().Unix()/60), taken[name].Error()+"; delete objects, or raise the quota")
	}
}
