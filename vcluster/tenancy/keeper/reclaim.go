// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package keeper

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
)

var apiServices = schema.GroupVersionResource{Group: "apiregistration.k8s.io", Version: "v1", Resource: "apiservices"}

// reclaim deletes the APIServices by which a server of the tenant answers for the group of a published or a forced definition, since before
// that was so. Admission rejects new ones.
func (k *Keeper) reclaim(ctx context.Context, d *desired) error {
	groups := map[string]bool{}
	for _, t := range d.cluster {
		if t.resource == definitions {
			group, _, _ := unstructured.NestedString(t.object.Object, "spec", "group")
			groups[group] = true
		}
	}
	if k.config.Shared != nil {
		set, _ := k.config.Shared.Watch()
		for _, name := range set.Names() {
			if one := set.Of(name); one.Forced {
				groups[one.CRD.Spec.Group] = true
			}
		}
	}
	if len(groups) == 0 {
		return nil
	}
	list, err := k.objects.Resource(apiServices).List(ctx, metav1.ListOptions{})
	if apierrors.IsNotFound(err) {
		return nil // the space has no servers but its own
	}
	if err != nil {
		return fmt.Errorf("list APIServices: %w", err)
	}
	var errs failures
	for i := range list.Items {
		group, _, _ := unstructured.NestedString(list.Items[i].Object, "spec", "group")
		_, served, _ := unstructured.NestedMap(list.Items[i].Object, "spec", "service")
		if served && groups[group] {
			errs.add(k.remove(ctx, key{resource: apiServices, name: list.Items[i].GetName()}, ptr.To(list.Items[i].GetUID())))
		}
	}
	return errs.join()
}
