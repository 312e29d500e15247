// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package volumelabels labels the volumes of the host with the space and the tenant that have them, because a
// provisioner's names say nothing to an admin. The platform writes the labels, and not the accounts of spaces, so these
// need no right on volumes that the host provisions. The manager calls the package whenever it reconciles a space.
package volumelabels

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/syncer/hostcache"
	"github.com/berth-dev/berth/syncer/resources"
	"github.com/berth-dev/berth/translate"
)

// Apply labels the volumes that claims of a space are bound to, as far as they are in the host's watches. Without a
// tenant, they have no label of one. A volume that is released keeps its labels.
func Apply(ctx context.Context, c client.Client, host *hostcache.Host, space, tenant string) error {
	var errs []error
	for v := range hostcache.Of[*corev1.PersistentVolume](host, space, resources.Volumes) {
		patch, differs := patchOf(v, space, tenant)
		if !differs {
			continue
		}
		err := c.Patch(ctx, &corev1.PersistentVolume{ObjectMeta: v.ObjectMeta}, patch)
		if client.IgnoreNotFound(err) != nil && !apierrors.IsConflict(err) { // an event follows
			errs = append(errs, fmt.Errorf("label volume %s: %w", v.Name, err))
		}
	}
	return errors.Join(errs...)
}

// patchOf returns the patch that gives a volume its labels; differs is false if it has them. The patch is for this
// version of the volume, which could be for another claim by now.
func patchOf(v *corev1.PersistentVolume, space, tenant string) (patch client.Patch, differs bool) {
	labels := map[string]*string{}
	for key, value := range map[string]string{translate.LabelSpace: space, translate.LabelTenant: tenant} {
		have, there := v.Labels[key]
		switch {
		case value == "" && there:
			labels[key] = nil
		case value != "" && have != value:
			labels[key] = &value
		}
	}
	if len(labels) == 0 {
		return nil, false
	}
	metadata := map[string]any{"uid": v.UID, "resourceVersion": v.ResourceVersion, "labels": labels}
	data, err := json.Marshal(map[string]any{"metadata": metadata})
	return client.RawPatch(types.MergePatchType, data), err == nil
}
