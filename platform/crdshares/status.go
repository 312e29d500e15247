// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package crdshares

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/api/v1alpha1"
)

// statuses returns the condition Ready of each share. It is the same for all platforms of a host. The caller holds mu.
func (s *Shares) statuses() map[string]metav1.Condition {
	all := map[string]metav1.Condition{}
	for name, share := range s.shares {
		is := s.served[name]
		if is == nil {
			continue // it was created just now
		}
		ready := metav1.Condition{
			Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, ObservedGeneration: share.Generation, Reason: is.reason, Message: is.message,
		}
		if problem := invalidSelector(share); is.reason == "" && problem != "" {
			ready.Reason, ready.Message = v1alpha1.ReasonInvalidSpec, problem
		} else if is.reason == "" {
			ready.Status, ready.Reason, ready.Message = metav1.ConditionTrue, v1alpha1.ReasonShared, "the spaces of the selected tenants have the definition"
		}
		all[name] = ready
	}
	return all
}

func invalidSelector(share *v1alpha1.CRDShare) string {
	for i := range share.Spec.Tenants {
		if _, err := metav1.LabelSelectorAsSelector(share.Spec.Tenants[i].Selector); err != nil {
			return fmt.Sprintf("spec.tenants[%d].selector: %v", i, err)
		}
	}
	return ""
}

// write writes the status of a share, if it differs.
func write(ctx context.Context, host client.Client, share *v1alpha1.CRDShare, ready metav1.Condition) error {
	changed := share.DeepCopy()
	if !meta.SetStatusCondition(&changed.Status.Conditions, ready) && share.Status.ObservedGeneration == share.Generation {
		return nil
	}
	changed.Status.ObservedGeneration = share.Generation
	err := host.Status().Patch(ctx, changed, client.MergeFrom(share))
	if apierrors.IsNotFound(err) {
		return nil // it was deleted meanwhile
	}
	return err
}

// record writes that spaces may store objects in a version, before they can, and returns all such versions.
func record(ctx context.Context, host client.Client, share *v1alpha1.CRDShare, version string) (stored []string, err error) {
	if slices.Contains(share.Status.StoredVersions, version) {
		return share.Status.StoredVersions, nil
	}
	current := &v1alpha1.CRDShare{} // the watch may be behind
	if err := host.Get(ctx, client.ObjectKeyFromObject(share), current); err != nil {
		return nil, fmt.Errorf("read status.storedVersions: %w", err)
	}
	if slices.Contains(current.Status.StoredVersions, version) {
		return current.Status.StoredVersions, nil
	}
	changed := current.DeepCopy()
	changed.Status.StoredVersions = append(changed.Status.StoredVersions, version)
	if err := host.Status().Patch(ctx, changed, client.MergeFromWithOptions(current, client.MergeFromWithOptimisticLock{})); err != nil {
		return nil, fmt.Errorf("write status.storedVersions: %w", err)
	}
	return changed.Status.StoredVersions, nil
}
