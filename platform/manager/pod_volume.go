// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"fmt"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/platform/datadir"
)

// claimsFile is a file in the directory of a space with a pod. It contains the volume claims with which its StatefulSet
// was created. They are immutable, and the platform may not read StatefulSets.
const claimsFile = "claims.json"

// podClaims returns the claims of a space's pod: those with which it was created, or those of the template if it is
// new.
func (m *Manager) podClaims(name string) ([]corev1.PersistentVolumeClaim, error) {
	path := filepath.Join(datadir.Dedicated(m.config.DataDir, name), claimsFile)
	made, err := datadir.ReadJSON[[]corev1.PersistentVolumeClaim](path)
	if err != nil {
		return nil, fmt.Errorf("find the claims of the pod of space %s: %w", name, err)
	}
	if made != nil {
		return *made, nil
	}
	claims := m.pods.DedicatedPods.Template.Spec.VolumeClaimTemplates
	if err := datadir.WriteJSON(path, claims); err != nil {
		return nil, fmt.Errorf("note the claims of the pod of space %s: %w", name, err)
	}
	return claims, nil
}

// volumeCondition returns the condition VolumeCurrent of a space. It is nil if the space has no pod, or if the volume
// of the pod matches the template.
func (m *Manager) volumeCondition(name string) *metav1.Condition {
	if m.pods == nil || m.processes.get(name) == nil {
		return nil
	}
	made, err := datadir.ReadJSON[[]corev1.PersistentVolumeClaim](filepath.Join(datadir.Dedicated(m.config.DataDir, name), claimsFile))
	if err != nil || made == nil || equality.Semantic.DeepEqual(*made, m.pods.DedicatedPods.Template.Spec.VolumeClaimTemplates) {
		return nil
	}
	return &metav1.Condition{
		Type: v1alpha1.ConditionVolumeCurrent, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonTemplateChanged,
		Message: "dedicated.storage of the chart has changed since the volume of the space was made, and a volume keeps its class and size; " +
			"to move the space to a new volume, set spec.isolation to Shared, wait until it is Ready, and set it to Dedicated again",
	}
}
