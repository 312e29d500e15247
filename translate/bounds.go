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

// These limit the cost of all namespace selectors of one object: the names that they select, and the labels and values
// that are compared to find them.
const (
	maxNamespaceNames = 10_000
	maxNamespaceLooks = 1_000_000
)

// TooManySelected is the message for an object whose namespace selectors cost too much.
const TooManySelected = "the namespace selectors of this object select, or look through, too many namespaces; use fewer selectors, or spread them over several objects"

// AtMost returns an error if there is more of a quantity than its limit. Kubernetes limits only the size of an object.
// All spaces share a process, which would pay for the products of a hundred thousand short entries.
func AtMost(path *field.Path, have int, of bounds.Quantity) field.ErrorList {
	if err := of.Check(int64(have)); err != nil {
		return field.ErrorList{field.Invalid(path, have, err.Error())}
	}
	return nil
}

// SelectedNamespaces resolves the namespace selectors of one object to names.
type SelectedNamespaces struct {
	all          []*corev1.Namespace
	names, looks int // the remaining budget
}

// NewSelectedNamespaces returns a resolver for the selectors of one object. all are the namespaces of its space.
func NewSelectedNamespaces(all []*corev1.Namespace) *SelectedNamespaces {
	return &SelectedNamespaces{all: all, names: maxNamespaceNames, looks: maxNamespaceLooks}
}

// By returns the names of the namespaces that a selector matches, in no order. If the object has used up its budget, ok
// is false and there are no names. An invalid selector, which no API server accepts, matches nothing.
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
