// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package publication

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/sharing"
)

// received returns the names under which the spaces of tenants above share something with a space, sorted. Whoever creates the Space
// may have written tenants into its annotation that aren't above, which the operator corrects only later.
func (r *spaceReconciler) received(ctx context.Context, space *v1alpha1.Space, tenant *v1alpha1.Tenant) (names []string, err error) {
	receiver := sharing.SpaceOf(space)
	if slices.ContainsFunc(receiver.InheritsFrom, func(above string) bool { return tenant.Labels[v1alpha1.LabelTreePrefix+above] == "" }) {
		return nil, nil
	}
	for _, above := range receiver.InheritsFrom {
		spaces := &v1alpha1.SpaceList{}
		if err := r.client.List(ctx, spaces, client.MatchingFields{SpaceTenant: above}, client.UnsafeDisableDeepCopy); err != nil {
			return nil, fmt.Errorf("list spaces of tenant %s: %w", above, err)
		}
		for i := range spaces.Items {
			from := sharing.SpaceOf(&spaces.Items[i])
			for _, class := range sharing.Received(receiver, from) {
				name := sharing.Publication(from, class)
				objects := &v1alpha1.PublishedObjectList{}
				if err := r.client.List(ctx, objects, client.MatchingFields{objectShare: name}, client.Limit(1), client.UnsafeDisableDeepCopy); err != nil {
					return nil, fmt.Errorf("list objects of %s: %w", name, err)
				}
				if len(objects.Items) > 0 {
					names = append(names, name)
				}
			}
		}
	}
	slices.Sort(names)
	return names, nil
}

// reportShares says in an event that a space can't have all publications.
func (r *spaceReconciler) reportShares(space *v1alpha1.Space, leftOut int) {
	if leftOut > 0 {
		r.events.Eventf(space, nil, corev1.EventTypeWarning, v1alpha1.ReasonTooManyPublications, "Publish",
			"spec.publications: the space may have %d publications, with those that tenants above share, and lacks %d; select it by fewer Publications, or let the tenants above share from fewer spaces",
			MaxPublications, leftOut)
	}
}

// receiversOf returns the spaces that receive a shared object, or did so.
func receiversOf(c client.Client) handler.MapFunc {
	return func(ctx context.Context, object client.Object) (requests []reconcile.Request) {
		by, name := object.GetLabels()[v1alpha1.LabelSharedBy], object.GetLabels()[v1alpha1.LabelPublication]
		if by == "" {
			return nil
		}
		sharer := &v1alpha1.Space{}
		if err := c.Get(ctx, client.ObjectKey{Name: by}, sharer); client.IgnoreNotFound(err) != nil {
			return nil // the cache returns an error only when its manager stops
		}
		below, having := &v1alpha1.SpaceList{}, &v1alpha1.SpaceList{}
		if err := errors.Join(
			c.List(ctx, below, client.MatchingFields{SpaceAbove: sharer.Spec.TenantName}, client.UnsafeDisableDeepCopy),
			c.List(ctx, having, client.MatchingFields{spaceShare: name}, client.UnsafeDisableDeepCopy),
		); err != nil {
			return nil
		}
		for _, space := range slices.Concat(below.Items, having.Items) { // the queue drops those that are twice in it
			if slices.Contains(space.Spec.Publications, name) || len(sharing.Received(sharing.SpaceOf(&space), sharing.SpaceOf(sharer))) > 0 {
				requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&space)})
			}
		}
		return requests
	}
}

// publicationChanged passes shared objects that are created, deleted, or published under another name. Other changes don't affect
// which names a space receives.
func publicationChanged() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		return e.ObjectOld.GetLabels()[v1alpha1.LabelPublication] != e.ObjectNew.GetLabels()[v1alpha1.LabelPublication]
	}}
}
