// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/syncer/engine"
	"github.com/berth-dev/berth/translate/pod"
)

// updatePodSubresources updates the parts of an existing host pod that Kubernetes accepts only through subresources:
// its ephemeral containers, its resources, and the conditions of its readiness gates.
func (s *Syncer) updatePodSubresources(ctx context.Context, v, want, host *corev1.Pod) (*corev1.Pod, error) {
	if host.DeletionTimestamp != nil || host.Status.Phase == corev1.PodSucceeded || host.Status.Phase == corev1.PodFailed {
		return host, nil
	}
	for _, change := range []struct {
		subresource string
		update      func(want, have *corev1.Pod) bool
	}{
		{"ephemeralcontainers", pod.AddEphemeral},
		{"resize", pod.Resize},
	} {
		have := host.DeepCopy()
		if !change.update(want, have) {
			continue
		}
		if err := s.Writer.UpdateVia(ctx, change.subresource, have); err != nil {
			return engine.Behind(host), fmt.Errorf("change %s of the host pod: %w", change.subresource, err)
		}
		host = have
	}
	if patch := pod.PatchGates(v, host); patch != nil {
		have := host.DeepCopy()
		if err := s.Writer.PatchStatus(ctx, have, client.RawPatch(types.StrategicMergePatchType, patch)); err != nil {
			return host, fmt.Errorf("answer the readiness gates of the host pod: %w", err)
		}
		host = have
	}
	return host, nil
}
