// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package pod_test

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	"github.com/berth-dev/berth/translate/pod"
)

// S4: what a host left out of a pod is found, whatever else it put in.
func TestWhatAHostDidNotTakeIsNamed(t *testing.T) {
	sent := func() *corev1.Pod {
		return &corev1.Pod{Spec: corev1.PodSpec{
			HostnameOverride:   ptr.To("web-0.web"),
			Resources:          &corev1.ResourceRequirements{Limits: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}},
			NodeSelector:       map[string]string{"zone": "", "disk": "fast"},
			EnableServiceLinks: ptr.To(true),
			SecurityContext: &corev1.PodSecurityContext{
				SupplementalGroups: []int64{1, 0},
				SeccompProfile:     &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
			},
			Containers: []corev1.Container{{Name: "a", VolumeMounts: []corev1.VolumeMount{
				{Name: "v", MountPath: "/a"}, {Name: "v", MountPath: "/b", SubPath: "x", ReadOnly: true},
			}}, {Name: "b", RestartPolicy: ptr.To(corev1.ContainerRestartPolicyNever), RestartPolicyRules: []corev1.ContainerRestartRule{
				{Action: corev1.ContainerRestartRuleActionRestart},
			}}},
			Volumes: []corev1.Volume{
				{Name: "v", VolumeSource: corev1.VolumeSource{Image: &corev1.ImageVolumeSource{Reference: "i"}}}, {Name: "w"},
				{Name: "p", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
					{ConfigMap: &corev1.ConfigMapProjection{}}, {Secret: &corev1.SecretProjection{}, ConfigMap: &corev1.ConfigMapProjection{}},
				}}}},
				{Name: "e", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{SizeLimit: ptr.To(resource.MustParse("1Gi"))}}},
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
		"it wrote a quantity otherwise": {func(s *corev1.PodSpec) { s.Volumes[3].EmptyDir.SizeLimit = ptr.To(resource.MustParse("1024Mi")) }, nil},
		"it chose another value, and zero is one": {func(s *corev1.PodSpec) {
			s.EnableServiceLinks, s.SecurityContext.SupplementalGroups, s.Volumes[3].EmptyDir.SizeLimit = ptr.To(false), []int64{0, 1}, &resource.Quantity{}
		}, nil},
		"it put in another of a name that there are several of": {func(s *corev1.PodSpec) {
			s.Containers[0].VolumeMounts = append(s.Containers[0].VolumeMounts, corev1.VolumeMount{Name: "v", MountPath: "/c"})
		}, nil},
		"it left out keys": {func(s *corev1.PodSpec) {
			delete(s.NodeSelector, "zone")
			s.Resources.Limits = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1")}
		}, []string{"spec.nodeSelector.zone", "spec.resources.limits.cpu"}},
		"it left out what is deeper": {func(s *corev1.PodSpec) {
			s.SecurityContext.SeccompProfile, s.Volumes[2].Projected.Sources[1].Secret = nil, nil
		}, []string{"spec.securityContext.seccompProfile", "spec.volumes[p].projected.sources[1].secret"}},
		"it took a kind of volume for another":  {func(s *corev1.PodSpec) { s.Volumes[3].EmptyDir = nil }, []string{"spec.volumes[e].emptyDir"}},
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
			if got := pod.Dropped(sent(), made); !slices.Equal(got, test.want) {
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
	if got := pod.Dropped(sent, made); got != nil {
		t.Errorf("it says %q", got)
	}
}
