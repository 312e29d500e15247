// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package keeper

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/berth-dev/berth/access"
)

// recordName is the name of the ConfigMap in kube-system that lists the resources of which there may be copies: also what was
// published is found and deleted that is no longer part of the state when the space wakes.
const recordName = "berth-kept"

var configMaps = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}

const recordKey = "resources"

// readRecord returns the resources of which there may be copies. It is nil if nothing is kept in the space.
func (k *Keeper) readRecord(ctx context.Context) ([]published, error) {
	u, err := k.objects.Resource(configMaps).Namespace(metav1.NamespaceSystem).Get(ctx, recordName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the record of kept objects: %w", err)
	}
	resources := []published{}
	text, _, _ := unstructured.NestedString(u.Object, "data", recordKey)
	if err := json.Unmarshal([]byte(text), &resources); err != nil || resources == nil {
		return []published{}, nil //nolint:nilerr // a user had it before Berth did; it is replaced
	}
	return resources, nil
}

// writeRecord replaces the record if it differs.
func (k *Keeper) writeRecord(ctx context.Context, rules *access.Rules, had, resources []published) error {
	if had != nil && slices.Equal(had, resources) {
		return nil
	}
	if resources == nil {
		resources = []published{}
	}
	text, err := json.Marshal(resources)
	if err != nil {
		return fmt.Errorf("encode the record of kept objects: %w", err)
	}
	u := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "data": map[string]any{recordKey: string(text)},
		"metadata": map[string]any{"name": recordName, "labels": map[string]any{access.LabelTenant: rules.State().TenantName()}},
	}}
	d := &desired{}
	if err := d.addTemplate(&template{resource: configMaps, namespaced: true, object: u}); err != nil {
		return err
	}
	return k.ensure(ctx, d.namespaced[0], metav1.NamespaceSystem)
}

func (k *Keeper) deleteRecord(ctx context.Context) error {
	return k.remove(ctx, key{configMaps, metav1.NamespaceSystem, recordName}, nil)
}
