// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package stored

import (
	"bytes"
	"encoding/json"
	"slices"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// ProtobufPrefix begins what is stored as protobuf: all built-in kinds but API
// services and definitions of custom resources.
const ProtobufPrefix = "k8s\x00"

// Collectable reports whether the garbage collector may have to do with an object:
// it has owners, or waits for its dependents to be deleted or orphaned.
func Collectable(value []byte) bool {
	if !bytes.HasPrefix(value, []byte(ProtobufPrefix)) &&
		!bytes.Contains(value, []byte(`"ownerReferences"`)) && !bytes.Contains(value, []byte(`"deletionTimestamp"`)) {
		return len(value) > 0 && value[0] != '{'
	}
	m, ok := metadataOf(value)
	if !ok || len(m.OwnerReferences) > 0 {
		return true
	}
	return m.DeletionTimestamp != nil && (slices.Contains(m.Finalizers, metav1.FinalizerDeleteDependents) ||
		slices.Contains(m.Finalizers, metav1.FinalizerOrphanDependents))
}

// Terminating reports whether an object is being deleted.
func Terminating(value []byte) bool {
	m, ok := metadataOf(value)
	return !ok || m.DeletionTimestamp != nil
}

// UnsettledRange reports whether a service range is not the default one, is not ready with the finalizer of its
// controller, or is being deleted.
func UnsettledRange(value []byte, finalizer string) bool {
	m, ok := metadataOf(value)
	return !ok || m.Name != "kubernetes" || m.DeletionTimestamp != nil || !slices.Contains(m.Finalizers, finalizer) ||
		!bytes.Contains(value, []byte(networkingv1.ServiceCIDRConditionReady))
}

// metadataOf decodes no more than an object's metadata.
func metadataOf(value []byte) (metav1.ObjectMeta, bool) {
	var partial metav1.PartialObjectMetadata
	if raw, ok := bytes.CutPrefix(value, []byte(ProtobufPrefix)); ok {
		var stored runtime.Unknown
		if stored.Unmarshal(raw) != nil {
			return metav1.ObjectMeta{}, false
		}
		// Metadata is the first field of all kinds that are stored.
		err := partial.Unmarshal(stored.Raw)
		return partial.ObjectMeta, err == nil
	}
	err := json.Unmarshal(value, &partial)
	return partial.ObjectMeta, err == nil
}
