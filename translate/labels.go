// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package translate

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// AddLabels copies a pod's own labels to its host object, because selectors of services and of affinity terms match
// them there.
func (s Space) AddLabels(host *metav1.ObjectMeta, labels map[string]string) {
	for key, value := range labels {
		host.Labels[s.hostLabel(key)] = value
	}
}

// mapSelector translates a tenant's map of labels to the labels of host pods.
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

// selects reports whether a selector, which an API server has validated, matches labels. The result is that of
// [metav1.LabelSelectorAsSelector]. Each pod is matched with all policies and budgets of its namespace, and parsing the
// selectors each time would take many times as long as matching them. A nil selector matches nothing.
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

// Selector restricts a tenant's selector to the host objects of this space and of these namespaces in it. A nil
// selector, which matches nothing, stays nil.
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
	if len(namespaces) == 0 { // a namespace selector matched none
		return &metav1.LabelSelector{MatchExpressions: append(out.MatchExpressions, metav1.LabelSelectorRequirement{
			Key: LabelSpace, Operator: metav1.LabelSelectorOpDoesNotExist,
		})}
	}
	out.MatchExpressions = append(out.MatchExpressions, metav1.LabelSelectorRequirement{
		Key: LabelNamespace, Operator: metav1.LabelSelectorOpIn, Values: namespaces,
	})
	return out
}
