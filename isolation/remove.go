// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package isolation

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/translate"
)

// Remove deletes everything that a space has on the host: its namespace with its contents, and its exported classes and volumes. It
// returns a description of what is left; empty if everything is deleted. It does not wait, and must be called again
// until then. account acts as the space's account, which alone may delete these; host may delete the namespace.
//
// A namespace that belongs to somebody else, or to a space of the same name with another store, is not deleted.
func Remove(ctx context.Context, host, account client.Client, space translate.Space) (left string, err error) {
	ns := &corev1.Namespace{}
	switch err := host.Get(ctx, client.ObjectKey{Name: space.HostNamespace()}, ns); {
	case client.IgnoreNotFound(err) != nil:
		return "", fmt.Errorf("read host namespace %s: %w", space.HostNamespace(), err)
	case err != nil, ns.Labels[translate.LabelSpace] != space.Name, ns.Annotations[translate.AnnotationStore] != space.Store:
		return "", nil
	}
	if ns.DeletionTimestamp.IsZero() { // its account is deleted with it
		for _, list := range []client.ObjectList{&schedulingv1.PriorityClassList{}, &storagev1.StorageClassList{}, &corev1.PersistentVolumeList{}} {
			if err := removeExported(ctx, host, account, list, space); err != nil {
				return "", err
			}
		}
		err := host.Delete(ctx, ns, client.Preconditions{UID: &ns.UID})
		if client.IgnoreNotFound(err) != nil {
			return "", fmt.Errorf("delete host namespace %s: %w", ns.Name, err)
		}
	}
	return "host namespace " + ns.Name + " is being deleted" + remaining(ns), nil
}

// remaining returns why the deletion of a namespace takes long, according to its controller.
func remaining(ns *corev1.Namespace) (text string) {
	for _, c := range ns.Status.Conditions {
		if c.Status == corev1.ConditionTrue && (c.Type == corev1.NamespaceContentRemaining || c.Type == corev1.NamespaceFinalizersRemaining || c.Type == corev1.NamespaceDeletionContentFailure) {
			text += ": " + c.Message
		}
	}
	return text
}

// removeExported deletes the classes or volumes of a space. What the account may no longer delete, because the option
// was turned off, is deleted by the host's garbage collector, after the namespace that owns it. The volumes that the
// host has provisioned have the label of the space, too, and are deleted with their claims.
func removeExported(ctx context.Context, host, account client.Client, list client.ObjectList, space translate.Space) error {
	if err := host.List(ctx, list, client.MatchingLabels{translate.LabelSpace: space.Name, translate.LabelManagedBy: translate.ManagedBy}); err != nil {
		return fmt.Errorf("list the cluster-scoped objects of space %s: %w", space.Name, err)
	}
	return apimeta.EachListItem(list, func(item runtime.Object) error {
		o, ok := item.(client.Object)
		if !ok {
			return nil
		}
		if err := account.Delete(ctx, o); client.IgnoreNotFound(err) != nil && !apierrors.IsForbidden(err) {
			return fmt.Errorf("delete %T %s of space %s: %w", o, o.GetName(), space.Name, err)
		}
		return nil
	})
}
