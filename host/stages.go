// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"errors"
	"fmt"

	"k8s.io/utils/ptr"
	nodestage "sigs.k8s.io/kwok/kustomize/stage/node/fast"
	heartbeatstage "sigs.k8s.io/kwok/kustomize/stage/node/heartbeat-with-lease"
	podstage "sigs.k8s.io/kwok/kustomize/stage/pod/fast"
	"sigs.k8s.io/kwok/pkg/apis/internalversion"
	"sigs.k8s.io/kwok/pkg/apis/v1alpha1"
	"sigs.k8s.io/kwok/pkg/utils/lifecycle"
	"sigs.k8s.io/yaml"
)

// nodeLifecycle is what happens to nodes: kwok's defaults for nodes that keep a
// lease.
func nodeLifecycle() (lifecycle.Lifecycle, error) {
	return newLifecycle(nodestage.DefaultNodeInit, heartbeatstage.DefaultNodeHeartbeatWithLease)
}

// podLifecycle is what happens to pods: kwok's defaults, save which pods end by
// themselves, and that those which are deleted end before they go.
func podLifecycle() (lifecycle.Lifecycle, error) {
	ready, err := parseStage(podstage.DefaultPodReady)
	if err != nil {
		return nil, err
	}
	complete, err := parseStage(podstage.DefaultPodComplete)
	if err != nil {
		return nil, err
	}
	if err := completeAllThatMayEnd(complete); err != nil {
		return nil, err
	}
	deleted, err := parseStage(podstage.DefaultPodDelete)
	if err != nil {
		return nil, err
	}
	deleted.Spec.Steps = append([]internalversion.StageStep{killed()}, deleted.Spec.Steps...)
	return lifecycle.NewLifecycle([]*internalversion.Stage{ready, complete, deleted})
}

// completeAllThatMayEnd makes stage match pods by their restart policy, where
// kwok's matches those that a Job owns: the host pod of a space's Job has no
// owner on the host. It also delays the stage, so that clients see such a pod
// running, by a second or what the annotation says that kwok's own stages with
// delays know.
func completeAllThatMayEnd(stage *internalversion.Stage) error {
	const owners = ".metadata.ownerReferences.[].kind"
	for i, e := range stage.Spec.Selector.MatchExpressions {
		if e.JQ == nil || e.JQ.Key != owners {
			continue
		}
		stage.Spec.Selector.MatchExpressions[i].JQ = &internalversion.SelectorJQ{
			Key:      ".spec.restartPolicy",
			Operator: internalversion.SelectorOpNotIn,
			Values:   []string{"Always"},
		}
		stage.Spec.Delay = &internalversion.StageDelay{
			DurationMilliseconds: ptr.To[int64](1000),
			DurationFrom: &internalversion.ExpressionFrom{JQ: &internalversion.ExpressionJQ{
				Expression: `.metadata.annotations["pod-complete.stage.kwok.x-k8s.io/delay"]`,
			}},
		}
		return nil
	}
	return errors.New("change kwok's stage pod-complete: it doesn't select by " + owners)
}

// killed ends the containers of a pod that has not ended: as with a kubelet, one
// that is deleted has failed before it is gone. A Job that replaces only pods
// that have failed would wait for ever for one that kwok just deletes.
func killed() internalversion.StageStep {
	return internalversion.StageStep{Patch: &internalversion.StagePatch{
		Subresource: "status",
		Root:        "status",
		Template: `
{{ if has .status.phase (list "Succeeded" "Failed") }}
{}
{{ else }}
{{ $now := Now }}
phase: Failed
conditions:
{{ range list "Ready" "ContainersReady" }}
- type: {{ . }}
  status: "False"
  reason: PodFailed
  lastTransitionTime: {{ $now | Quote }}
{{ end }}
containerStatuses:
{{ range .spec.containers }}
- name: {{ .name | Quote }}
  image: {{ .image | Quote }}
  ready: false
  started: false
  restartCount: 0
  state:
    terminated:
      reason: Error
      exitCode: 143
      finishedAt: {{ $now | Quote }}
{{ end }}
{{ end }}`,
	}}
}

func newLifecycle(texts ...string) (lifecycle.Lifecycle, error) {
	stages := make([]*internalversion.Stage, 0, len(texts))
	for _, text := range texts {
		stage, err := parseStage(text)
		if err != nil {
			return nil, err
		}
		stages = append(stages, stage)
	}
	return lifecycle.NewLifecycle(stages)
}

func parseStage(text string) (*internalversion.Stage, error) {
	var stage v1alpha1.Stage
	if err := yaml.UnmarshalStrict([]byte(text), &stage); err != nil {
		return nil, fmt.Errorf("parse kwok stage: %w", err)
	}
	v1alpha1.SetObjectDefaults_Stage(&stage)
	internal, err := internalversion.ConvertToInternalStage(&stage)
	if err != nil {
		return nil, fmt.Errorf("convert kwok stage %s: %w", stage.Name, err)
	}
	return internal, nil
}
