// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package crdshares

import (
	"encoding/json"
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/berth-dev/berth/api/v1alpha1"
)

// Subject is what decides whether a space is selected: what its object says of its tenant.
type Subject struct {
	tenant string
	labels map[string]string
}

// SubjectOf returns what an object says of its space.
func SubjectOf(object *v1alpha1.Space) Subject {
	is := Subject{tenant: object.Spec.TenantName}
	if text := object.Annotations[v1alpha1.AnnotationTenantLabels]; text != "" && json.Unmarshal([]byte(text), &is.labels) != nil {
		is.labels = nil // somebody else wrote it; the operator is about to write it again
	}
	return is
}

// Equal reports whether two subjects are always selected by the same.
func (s Subject) Equal(other Subject) bool {
	return s.tenant == other.tenant && maps.Equal(s.labels, other.labels)
}

// SelectedBy reports whether one of the selections selects a space. A space without a tenant never is.
func (s Subject) SelectedBy(tenants []v1alpha1.CRDShareTenants) bool {
	return s.tenant != "" && slices.ContainsFunc(tenants, func(t v1alpha1.CRDShareTenants) bool {
		if t.Selector == nil {
			return slices.Contains(t.Names, s.tenant)
		}
		selector, err := metav1.LabelSelectorAsSelector(t.Selector)
		return err == nil && selector.Matches(labels.Set(s.labels)) // the status says what is wrong
	})
}
