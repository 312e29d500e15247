// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package translate

import (
	"maps"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// PushMeta replaces the labels of have by those of want, and sets want's annotations on it. Other annotations stay,
// because kubelets, provisioners, and load balancers keep theirs there. It reports whether anything differed.
func PushMeta(want, have metav1.Object) bool {
	changed := false
	if !maps.Equal(want.GetLabels(), have.GetLabels()) {
		have.SetLabels(maps.Clone(want.GetLabels()))
		changed = true
	}
	annotations := maps.Clone(have.GetAnnotations())
	if annotations == nil {
		annotations = map[string]string{}
	}
	for key := range annotations {
		if _, wanted := want.GetAnnotations()[key]; Owned(key) && !wanted && key != AnnotationNode {
			delete(annotations, key)
		}
	}
	maps.Copy(annotations, want.GetAnnotations())
	if !maps.Equal(annotations, have.GetAnnotations()) {
		have.SetAnnotations(annotations)
		changed = true
	}
	return changed
}
