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

// goesWhenOff reports whether a kind's host objects go when it is switched off:
// nobody looks after them any more. A tenant could not end its pods, and
// ingresses would be served wherever their services lead by then.
func goesWhenOff(k resources.Kind) bool { return k.Direction == resources.ToHost && !k.Lasts() }

// findLeftovers finds what spaces have on the host of kinds that are switched
// off. Their syncers remove it, as their own accounts, when they run next. None
// is made any more, so that once is enough.
func (h *Host) findLeftovers(ctx context.Context) error {
	for _, k := range resources.Table() {
		if h.sync.On(k.Name) || !goesWhenOff(k) {
			continue
		}
		gvk, err := h.mapper.KindFor(schema.GroupVersionResource{Resource: k.Name})
		if err != nil {
			return fmt.Errorf("find %s, which are switched off: %w", k.Name, err)
		}
		all := metadataOf(gvk)
		err = h.reader.List(ctx, all, client.HasLabels{translate.LabelSpace, translate.LabelNamespace})
		if apierrors.IsNotFound(err) {
			continue // the host does not have the kind
		}
		if err != nil {
			return fmt.Errorf("find %s on the host, which are switched off, to remove them: %w", k.Name, err)
		}
		for i := range all.Items {
			o := &all.Items[i]
			id, ours := translate.IdentityOf(o)
			// The address of a space's API is its own matter.
			api := k.Name == services && id.Namespace == metav1.NamespaceDefault && id.Name == "kubernetes"
			if ours && !api && spaceIn(o.Namespace) == id.Space {
				// No more of it than its removal takes: the space may sleep for long, or run elsewhere.
				h.leftovers.Store(object{k.Name, client.ObjectKeyFromObject(o)},
					&metav1.PartialObjectMetadata{TypeMeta: o.TypeMeta, ObjectMeta: metav1.ObjectMeta{Namespace: o.Namespace, Name: o.Name, UID: o.UID}})
			}
		}
	}
	return nil
}

// clear removes what the space has on the host of a kind that is switched off.
func (s *Syncer) clear(kind string) {
	s.work[kind] = func(ctx context.Context, name types.NamespacedName) (time.Duration, error) {
		key := object{kind, name}
		found, ok := s.host.leftovers.Load(key)
		o, is := found.(*metav1.PartialObjectMetadata)
		if !ok || !is {
			return 0, nil // looked for by a kind that is not switched off
		}
		// Past the writer, which waits for watches that are not there.
		err := s.writer.Client.Delete(ctx, o, client.Preconditions{UID: ptr.To(o.UID)})
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) { // another has the name by now
			return 0, fmt.Errorf("remove it from the host, as %s are switched off: %w", kind, err)
		}
		s.host.leftovers.Delete(key)
		return 0, nil
	}
	s.sources.add(func(q *queue) (func(), func() bool, error) {
		n := 0
		for key := range s.host.leftovers.Range {
			if o, ok := key.(object); ok && o.kind == kind && o.Namespace == s.space.HostNamespace() {
				q.add(Key{Kind: kind, NamespacedName: o.NamespacedName})
				n++
			}
		}
		if n > 0 {
			s.logger.Info("Removes what the space has on the host, as the kind is switched off", "kind", kind, "objects", n)
		}
		return func() {}, nil, nil
	})
}
