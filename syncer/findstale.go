// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package syncer

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
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
		if h.Sync.On(k.Name) || !removedWhenOff(k) {
			continue
		}
		gvk, err := h.mapper.KindFor(schema.GroupVersionResource{Resource: k.Name})
		if err != nil {
			return fmt.Errorf("find %s, which are disabled: %w", k.Name, err)
		}
		all := metadataOf(gvk)
		err = h.reader.List(ctx, all, client.HasLabels{translate.LabelSpace, translate.LabelNamespace})
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
			api := k.Name == resources.Services && id.Namespace == metav1.NamespaceDefault && id.Name == "kubernetes"
			if ours && !api && spaceIn(o.Namespace) == id.Space {
				// No more of it than its removal takes: the space may sleep for long, or run elsewhere.
				h.stale.Store(object{k.Name, client.ObjectKeyFromObject(o)},
					&metav1.PartialObjectMetadata{TypeMeta: o.TypeMeta, ObjectMeta: metav1.ObjectMeta{Namespace: o.Namespace, Name: o.Name, UID: o.UID}})
			}
		}
	}
	return nil
}
