// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package translate

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// AddLabels puts a pod's own labels on its host object, where the selectors of
// services and of affinity terms look for them.
func (s Space) AddLabels(host *metav1.ObjectMeta, labels map[string]string) {
	for key, value := range labels {
		host.Labels[s.hostLabel(key)] = value
	}
}

// mapSelector is a tenant's map of labels as host pods have them.
func (s Space) mapSelector(selector map[string]string) map[string]string {
	if selector == nil {
		return nil
	}
	out := make(map[string]string, len(selector)+2)
	for key, value := range selector {
		out[s.hostLabel(key)] = value
	}
	return out
}

// selects reports whether a selector that an API server let through matches
// labels. It says what [metav1.LabelSelectorAsSelector] would: each pod meets all
// policies and budgets of its namespace, and to parse these each time takes many
// times as long as to match. A nil selector matches nothing.
func selects(selector *metav1.LabelSelector, of map[string]string) bool {
	if selector == nil {
		return false
	}
	for key, want := range selector.MatchLabels {
		if have, ok := of[key]; !ok || have != want {
			return false
		}
	}
	for i := range selector.MatchExpressions {
		e := &selector.MatchExpressions[i]
		have, ok := of[e.Key]
		switch e.Operator {
		case metav1.LabelSelectorOpIn:
			ok = ok && slices.Contains(e.Values, have)
		case metav1.LabelSelectorOpNotIn:
			ok = !ok || !slices.Contains(e.Values, have)
		case metav1.LabelSelectorOpExists:
		case metav1.LabelSelectorOpDoesNotExist:
			ok = !ok
		default:
			ok = false
		}
		if !ok {
			return false
		}
	}
	return true
}

// Selector narrows a selector of the tenant's to the host objects that were
// made for this space and the given namespaces of it. A nil selector, which
// selects nothing, stays nil.
func (s Space) Selector(selector *metav1.LabelSelector, namespaces ...string) *metav1.LabelSelector {
	if selector == nil {
		return nil
	}
	out := selector.DeepCopy()
	out.MatchLabels = s.mapSelector(out.MatchLabels)
	for i := range out.MatchExpressions {
		out.MatchExpressions[i].Key = s.hostLabel(out.MatchExpressions[i].Key)
	}
	out.MatchExpressions = append(out.MatchExpressions, metav1.LabelSelectorRequirement{
		Key: LabelSpace, Operator: metav1.LabelSelectorOpIn, Values: []string{s.Name},
	})
	if len(namespaces) == 0 { // a namespace selector that matched none
		return &metav1.LabelSelector{MatchExpressions: append(out.MatchExpressions, metav1.LabelSelectorRequirement{
			Key: LabelSpace, Operator: metav1.LabelSelectorOpDoesNotExist,
		})}
	}
	out.MatchExpressions = append(out.MatchExpressions, metav1.LabelSelectorRequirement{
		Key: LabelNamespace, Operator: metav1.LabelSelectorOpIn, Values: namespaces,
	})
	return out
}
