// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package translate

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/berth-dev/berth/bounds"
)

// What the namespace selectors of one object may cost together: the names that
// they select, and the labels and values compared to find them.
const (
	maxNamespaceNames = 10_000
	maxNamespaceLooks = 1_000_000
)

// TooManySelected is what a user reads whose namespace selectors cost too much.
const TooManySelected = "the namespace selectors of this object select, or look through, too many namespaces; use fewer selectors, or spread them over several objects"

// AtMost refuses more of a quantity than its bound. Kubernetes bounds an object by
// its size alone, and a process that all spaces share would pay for what a hundred
// thousand short entries multiply with.
func AtMost(path *field.Path, have int, of bounds.Quantity) field.ErrorList {
	if err := of.Check(int64(have)); err != nil {
		return field.ErrorList{field.Invalid(path, have, err.Error())}
	}
	return nil
}

// SelectedNamespaces turns the namespace selectors of one object into names.
type SelectedNamespaces struct {
	all          []*corev1.Namespace
	names, looks int // that are left
}

// NewSelectedNamespaces is for the selectors of one object, among all namespaces of its space.
func NewSelectedNamespaces(all []*corev1.Namespace) *SelectedNamespaces {
	return &SelectedNamespaces{all: all, names: maxNamespaceNames, looks: maxNamespaceLooks}
}

// By are the names of the namespaces that a selector matches, in no order. ok is
// false, and there are none, once the object has asked for too many. An invalid
// selector, which no API server lets through, matches none.
func (n *SelectedNamespaces) By(selector *metav1.LabelSelector) (names []string, ok bool) {
	each := 1 + len(selector.MatchLabels)
	for i := range selector.MatchExpressions {
		each += 1 + len(selector.MatchExpressions[i].Values)
	}
	if n.looks -= each * len(n.all); n.looks < 0 {
		return nil, false
	}
	matches, err := metav1.LabelSelectorAsSelector(selector)
	if err != nil {
		return nil, true
	}
	for _, ns := range n.all {
		if !matches.Matches(labels.Set(ns.Labels)) {
			continue
		}
		if n.names--; n.names < 0 {
			return nil, false
		}
		names = append(names, ns.Name)
	}
	return names, true
}
