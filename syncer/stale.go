// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package syncer

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/syncer/resources"
	"github.com/berth-dev/berth/translate"
)

// removedWhenOff reports whether the host objects of a resource are deleted when it is
// disabled: no syncer updates them any more. A tenant could not end its pods, and
// ingresses would be served wherever their services lead by then.
func removedWhenOff(r resources.Resource) bool { return r.Direction == resources.ToHost && !r.Lasts() }

// findStale finds the stale host objects: those that spaces have of disabled
// resources. Their syncers remove them, as their own accounts, when they run next.
// None is made any more, so that once is enough.
func (h *Host) findStale(ctx context.Context) error {
	for _, k := range resources.Table() {
		if h.sync.On(k.Name) || !removedWhenOff(k) {
			continue
		}
		gvk, err := h.mapper.KindFor(schema.GroupVersionResource{Resource: k.Name})
		if err != nil {
			return fmt.Errorf("find %s, which are disabled: %w", k.Name, err)
		}
		all := metadataOf(gvk)
		err = h.reader.List(ctx, all, client.InNamespace(h.ownNamespace()), client.HasLabels{translate.LabelSpace, translate.LabelNamespace})
		if apierrors.IsNotFound(err) {
			continue // the host does not have the resource
		}
		if err != nil {
			return fmt.Errorf("find %s on the host, which are disabled, to remove them: %w", k.Name, err)
		}
		for i := range all.Items {
			o := &all.Items[i]
			id, ours := translate.IdentityOf(o)
			// The address of a space's API is its own matter.
			api := k.Name == services && id.Namespace == metav1.NamespaceDefault && id.Name == "kubernetes"
			if ours && !api && spaceIn(o.Namespace) == id.Space {
				// No more of it than its removal takes: the space may sleep for long, or run elsewhere.
				h.stale.Store(object{k.Name, client.ObjectKeyFromObject(o)},
					&metav1.PartialObjectMetadata{TypeMeta: o.TypeMeta, ObjectMeta: metav1.ObjectMeta{Namespace: o.Namespace, Name: o.Name, UID: o.UID}})
			}
		}
	}
	return nil
}

// removeStale removes the space's stale host objects of a disabled resource.
func (s *Syncer) removeStale(resource string) {
	s.work[resource] = func(ctx context.Context, name types.NamespacedName) (time.Duration, error) {
		key := object{resource, name}
		found, ok := s.host.stale.Load(key)
		o, is := found.(*metav1.PartialObjectMetadata)
		if !ok || !is {
			return 0, nil // looked for by a resource that is enabled
		}
		// Past the writer, which waits for watches that are not there.
		err := s.writer.Client.Delete(ctx, o, client.Preconditions{UID: ptr.To(o.UID)})
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) { // another has the name by now
			return 0, fmt.Errorf("remove it from the host, as %s are disabled: %w", resource, err)
		}
		s.host.stale.Delete(key)
		return 0, nil
	}
	s.sources.add(func(q *queue) (func(), func() bool, error) {
		n := 0
		for key := range s.host.stale.Range {
			if o, ok := key.(object); ok && o.resource == resource && o.Namespace == s.space.HostNamespace() {
				q.add(Key{Resource: resource, NamespacedName: o.NamespacedName})
				n++
			}
		}
		if n > 0 {
			s.logger.Info("Removing the space's host objects, as the resource is disabled", "resource", resource, "objects", n)
		}
		return func() {}, nil, nil
	})
}
