// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package crdshares

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/api/v1alpha1"
)

// statuses returns the condition Ready of each share. The caller holds mu.
func (s *Shares) statuses() map[string]metav1.Condition {
	all := map[string]metav1.Condition{}
	for name, share := range s.shares {
		is := s.served[name]
		if is == nil {
			continue // it was created just now
		}
		ready := metav1.Condition{Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, ObservedGeneration: share.Generation, Reason: is.reason, Message: is.message}
		switch {
		case is.reason != "":
		default:
			if problem := invalidSelector(share); problem != "" {
				ready.Reason, ready.Message = v1alpha1.ReasonInvalidSpec, problem
			} else if without := s.dedicatedOf(share); len(without) > 0 {
				ready.Reason = v1alpha1.ReasonDedicatedSpaces
				ready.Message = fmt.Sprintf(
					"%s%d spaces of the selected tenants don't get the definition, such as %s: spec.isolation of the Space is Dedicated; set it to Shared, or don't select its tenant",
					s.prefix(), len(without), without[0])
			} else {
				ready.Status, ready.Reason, ready.Message = metav1.ConditionTrue, v1alpha1.ReasonShared, "the spaces of the selected tenants have the definition"
			}
		}
		if s.leaves(share, &ready) {
			continue
		}
		all[name] = ready
	}
	return all
}

// prefix begins what only this platform can say.
func (s *Shares) prefix() string { return fmt.Sprintf("platform %s: ", s.platform) }

// leaves reports whether another platform has found spaces of its own that don't get the definition, which this one can't see. Otherwise,
// the platforms of a host would replace each other's conditions without end.
func (s *Shares) leaves(share *v1alpha1.CRDShare, ready *metav1.Condition) bool {
	has := meta.FindStatusCondition(share.Status.Conditions, v1alpha1.ConditionReady)
	return has != nil && has.Reason == v1alpha1.ReasonDedicatedSpaces && has.ObservedGeneration == share.Generation &&
		!strings.HasPrefix(has.Message, s.prefix()) && (ready.Reason == v1alpha1.ReasonDedicatedSpaces || ready.Reason == v1alpha1.ReasonShared)
}

func invalidSelector(share *v1alpha1.CRDShare) string {
	for i := range share.Spec.Tenants {
		if _, err := metav1.LabelSelectorAsSelector(share.Spec.Tenants[i].Selector); err != nil {
			return fmt.Sprintf("spec.tenants[%d].selector: %v", i, err)
		}
	}
	return ""
}

// dedicatedOf returns the spaces that are selected, and don't get the definition because they have a process of their own.
func (s *Shares) dedicatedOf(share *v1alpha1.CRDShare) (spaces []string) {
	for _, name := range slices.Sorted(maps.Keys(s.spaces)) {
		if of := s.spaces[name]; of.dedicated && selects(share, of) {
			spaces = append(spaces, name)
		}
	}
	return spaces
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
