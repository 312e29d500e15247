// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package hostcache

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/syncer/resources"
	"github.com/berth-dev/berth/translate"
)

// RemovedWhenOff reports whether the host objects of a resource are deleted when it is disabled, because no syncer
// updates them any more. Otherwise, a tenant could not stop its pods, and ingresses would route to whatever their
// services select by then.
func RemovedWhenOff(r resources.Resource) bool { return r.Direction == resources.ToHost && !r.Lasts }

// stalePage is how many stale objects a request returns at most.
const stalePage = 500

// findStale finds the stale host objects of spaces in a namespace, or in all: those of disabled resources that are not
// watched. The syncers delete them with their own accounts when they next run. No new ones are created, so this runs
// only once for each space.
func (h *Host) findStale(ctx context.Context, namespace string, of func(space string) bool) error {
	for _, k := range resources.Table() {
		if h.Routers[k.Name] != nil || !RemovedWhenOff(k) {
			continue
		}
		all := MetadataList(k.GVK())
		for {
			err := h.Reader.List(ctx, all, client.InNamespace(namespace), client.HasLabels{translate.LabelSpace, translate.LabelNamespace},
				client.Limit(stalePage), client.Continue(all.Continue))
			if apierrors.IsNotFound(err) {
				break // the host does not have the resource
			}
			if err != nil {
				return fmt.Errorf("find %s on the host, which are disabled, to remove them: %w", k.Name, err)
			}
			for i := range all.Items {
				if o := &all.Items[i]; isSynced(k.Name, o) && of(spaceIn(o.Namespace)) {
					// Only what the deletion needs is kept, because the space may sleep for long, or run elsewhere.
					h.stale.Store(Object{k.Name, client.ObjectKeyFromObject(o)},
						&metav1.PartialObjectMetadata{TypeMeta: o.TypeMeta, ObjectMeta: metav1.ObjectMeta{Namespace: o.Namespace, Name: o.Name, UID: o.UID}})
				}
			}
			if all.Continue == "" {
				break
			}
		}
	}
	return nil
}

// keepsStaleOf reports whether the stale objects of a space are this process's to delete.
func (h *Host) keepsStaleOf(space string) bool { return !h.OwnOnly || h.IsOwn(space) }

// findStaleOf finds the stale host objects of spaces that have become this process's.
func (h *Host) findStaleOf(ctx context.Context, spaces []string) error {
	if len(spaces) > maxNamespaceLists {
		return h.findStale(ctx, metav1.NamespaceAll, func(space string) bool { return slices.Contains(spaces, space) && h.IsOwn(space) })
	}
	for _, space := range spaces {
		if err := h.findStale(ctx, translate.Space{Name: space}.HostNamespace(), h.IsOwn); err != nil {
			return err
		}
	}
	return nil
}

// forgetStaleOf removes the stale objects of spaces that have left this process.
func (h *Host) forgetStaleOf(left func(space string) bool) {
	for key := range h.stale.Range {
		if o, ok := key.(Object); ok && left(spaceIn(o.Namespace)) {
			h.stale.Delete(key)
		}
	}
}

// isSynced reports whether a host object was synced from the space of its host namespace. The service of a space's API
// was not: Berth itself creates it.
func isSynced(resource string, o client.Object) bool {
	id, ours := translate.IdentityOf(o)
	return ours && spaceIn(o.GetNamespace()) == id.Space && o.GetLabels()[translate.LabelNamespace] != "" &&
		(resource != resources.Services || !isAPI(id))
}

// StaleOf returns the names of a space's host objects of a resource that is disabled for it.
func (h *Host) StaleOf(space translate.Space, resource string) (names []types.NamespacedName) {
	for o := range Of[client.Object](h, space.Name, resource) {
		if isSynced(resource, o) {
			names = append(names, client.ObjectKeyFromObject(o))
		}
	}
	for key := range h.stale.Range {
		if o, ok := key.(Object); ok && o.Resource == resource && o.Namespace == space.HostNamespace() {
			names = append(names, o.NamespacedName)
		}
	}
	return names
}

// StaleObject returns a host object of a resource that is disabled for its space; nil if there is none with this name.
func (h *Host) StaleObject(resource string, name types.NamespacedName) *metav1.PartialObjectMetadata {
	if h.Routers[resource] != nil {
		o, ok := Get[client.Object](h, resource, name.Namespace, name.Name)
		if !ok || !isSynced(resource, o) || o.GetDeletionTimestamp() != nil {
			return nil
		}
		stale := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: o.GetNamespace(), Name: o.GetName(), UID: o.GetUID()}}
		stale.SetGroupVersionKind(resources.Of(resource).GVK())
		return stale
	}
	found, _ := h.stale.Load(Object{resource, name})
	o, _ := found.(*metav1.PartialObjectMetadata)
	return o
}

// ForgetStale removes a stale host object from the list after its deletion.
func (h *Host) ForgetStale(resource string, name types.NamespacedName) {
	h.stale.Delete(Object{resource, name})
}
