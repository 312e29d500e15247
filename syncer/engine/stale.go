// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// RemoveStale deletes the space's host objects of a disabled resource.
func (s *Engine) RemoveStale(resource string) {
	s.Work[resource] = func(ctx context.Context, name types.NamespacedName) (time.Duration, error) {
		if name.Namespace != s.Space.HostNamespace() {
			return 0, nil // another, enabled resource handles it
		}
		o := s.Host.StaleObject(resource, name)
		if o == nil {
			return 0, nil
		}
		// Not with the writer, which would wait for watches that don't exist.
		err := s.Writer.Client.Delete(ctx, o, client.Preconditions{UID: ptr.To(o.UID)})
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) { // another object has the name by now
			return 0, fmt.Errorf("remove it from the host, as %s are disabled: %w", resource, err)
		}
		s.Host.ForgetStale(resource, name)
		return 0, nil
	}
	// A watch that other spaces need also has the last writes of a syncer that ran a moment ago.
	s.FromHost(resource, func(host client.Object, enqueue func(Key)) {
		enqueue(Key{Resource: resource, NamespacedName: client.ObjectKeyFromObject(host)})
	})
	s.Sources.Add(func(q *Queue) (func(), func() bool, error) {
		stale := s.Host.StaleOf(s.Space, resource)
		for _, name := range stale {
			q.Add(Key{Resource: resource, NamespacedName: name})
		}
		if len(stale) > 0 {
			s.logger.Info("Deleting the space's host objects, as the resource is disabled", "resource", resource, "count", len(stale))
		}
		return func() {}, nil, nil
	})
}
