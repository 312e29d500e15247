// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package vcluster

import (
	"bytes"
	"encoding/json"
	"slices"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/kubernetes/pkg/controller/servicecidrs"
)

// These look at objects as they are stored. Each write passes them, so they
// decode no more than they must. Of what they can't read they say yes: a
// controller that runs for nothing does no harm.

// protobufPrefix begins what is stored as protobuf: all built-in kinds but API
// services and definitions of custom resources.
const protobufPrefix = "k8s\x00"

// contains matches objects that hold the text, in whatever field.
func contains(text string) func(string, []byte) bool {
	return func(_ string, value []byte) bool { return bytes.Contains(value, []byte(text)) }
}

// collectable says whether the garbage collector may have to do with an object:
// it has owners, or waits for its dependents to be deleted or orphaned.
func collectable(value []byte) bool {
	if !bytes.HasPrefix(value, []byte(protobufPrefix)) &&
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

// terminating says whether an object is being deleted.
func terminating(value []byte) bool {
	m, ok := metadataOf(value)
	return !ok || m.DeletionTimestamp != nil
}

// unsettledRange says whether a service range has yet to be made ready, or is to
// go.
func unsettledRange(_ string, value []byte) bool {
	m, ok := metadataOf(value)
	return !ok || m.Name != "kubernetes" || m.DeletionTimestamp != nil ||
		!slices.Contains(m.Finalizers, servicecidrs.ServiceCIDRProtectionFinalizer) ||
		!bytes.Contains(value, []byte(networkingv1.ServiceCIDRConditionReady))
}

// metadataOf decodes no more than an object's metadata.
func metadataOf(value []byte) (metav1.ObjectMeta, bool) {
	var partial metav1.PartialObjectMetadata
	if raw, ok := bytes.CutPrefix(value, []byte(protobufPrefix)); ok {
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
