// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package translate_test

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	"github.com/berth-dev/berth/translate"
)

// S4: what a host left out of a pod is found, whatever else it put in.
func TestWhatAHostDidNotTakeIsNamed(t *testing.T) {
	sent := func() *corev1.Pod {
		return &corev1.Pod{Spec: corev1.PodSpec{
			HostnameOverride: ptr.To("web-0.web"),
			Resources:        &corev1.ResourceRequirements{Limits: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}},
			Containers: []corev1.Container{{Name: "a", VolumeMounts: []corev1.VolumeMount{{Name: "v"}}}, {Name: "b", RestartPolicy: ptr.To(corev1.ContainerRestartPolicyNever), RestartPolicyRules: []corev1.ContainerRestartRule{
				{Action: corev1.ContainerRestartRuleActionRestart},
			}}},
			Volumes: []corev1.Volume{
				{Name: "v", VolumeSource: corev1.VolumeSource{Image: &corev1.ImageVolumeSource{Reference: "i"}}}, {Name: "w"},
			},
			Tolerations: []corev1.Toleration{{Key: "k"}},
		}}
	}
	for reason, test := range map[string]struct {
		made func(*corev1.PodSpec)
		want []string
	}{
		"it took all":               {func(*corev1.PodSpec) {}, nil},
		"it put in what it chooses": {func(s *corev1.PodSpec) { s.NodeName, s.Containers[0].TerminationMessagePath = "n", "/dev" }, nil},
		"it put in containers": {func(s *corev1.PodSpec) {
			s.Containers = slices.Insert(s.Containers, 0, corev1.Container{Name: "mesh"})
		}, nil},
		"it put in tolerations": {func(s *corev1.PodSpec) {
			s.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}, {Key: "k"}}
		}, nil},
		"it wrote quantities otherwise":         {func(s *corev1.PodSpec) { s.Resources.Limits[corev1.ResourceCPU] = resource.MustParse("1000m") }, nil},
		"it is too old for pods' own resources": {func(s *corev1.PodSpec) { s.Resources = nil }, []string{"spec.resources"}},
		"and for fields of containers, behind those of its own": {func(s *corev1.PodSpec) {
			s.Containers[1].RestartPolicyRules, s.HostnameOverride = nil, nil
			s.Containers = slices.Insert(s.Containers, 0, corev1.Container{Name: "mesh"})
		}, []string{"spec.containers[b].restartPolicyRules", "spec.hostnameOverride"}},
		"and for kinds of volumes, which go whole": {func(s *corev1.PodSpec) {
			s.Volumes, s.Containers[0].VolumeMounts = nil, nil
		}, []string{"spec.containers[a].volumeMounts", "spec.volumes"}},
		"and for some of them":                 {func(s *corev1.PodSpec) { s.Volumes = slices.Delete(s.Volumes, 0, 1) }, []string{"spec.volumes[v]"}},
		"or has another in its place":          {func(s *corev1.PodSpec) { s.Volumes[1].Name = "x" }, []string{"spec.volumes[w]"}},
		"its admission decides on tolerations": {func(s *corev1.PodSpec) { s.Tolerations = nil }, []string{"spec.tolerations"}},
	} {
		t.Run(reason, func(t *testing.T) {
			made := sent()
			test.made(&made.Spec)
			if got := translate.Dropped(sent(), made); !slices.Equal(got, test.want) {
				t.Errorf("it says %q, want %q", got, test.want)
			}
		})
	}
}

// S4: what is empty is not there for an API server, whether it is written or not.
func TestNothingIsMissedWhereNothingWasAsked(t *testing.T) {
	sent := &corev1.Pod{Spec: corev1.PodSpec{
		NodeSelector: map[string]string{}, Tolerations: []corev1.Toleration{},
		Containers: []corev1.Container{{Name: "a", Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{}}}},
	}}
	made := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "a"}}}}
	if got := translate.Dropped(sent, made); got != nil {
		t.Errorf("it says %q", got)
	}
	sent.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
	made.Spec.Volumes = []corev1.Volume{{Name: "v"}}
	if got, want := translate.Dropped(sent, made), []string{"spec.volumes[v].emptyDir"}; !slices.Equal(got, want) {
		t.Errorf("it says %q, want %q", got, want)
	}
}
