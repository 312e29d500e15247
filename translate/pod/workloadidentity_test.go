// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package pod_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berth-dev/berth/translate"
	"github.com/berth-dev/berth/translate/pod"
	"github.com/berth-dev/berth/translate/workloadidentity"
)

// S1, M4: a pod has the label by which a cloud's webhook acts if its account may have the identity, and loses it with that.
func TestPodsHaveLabelsOfTheirIdentity(t *testing.T) {
	const key, label = "azure.workload.identity/client-id", "azure.workload.identity/use"
	space := translate.Space{Name: "mine", Settings: translate.Settings{WorkloadIdentity: workloadidentity.Rules{
		{Annotation: key, Values: []string{"1111"}, PodLabels: map[string]string{label: "true"}},
	}}}
	v := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", Labels: map[string]string{label: "true", "app": "web"}}}
	in := func(annotations map[string]string) pod.Surroundings {
		return pod.Surroundings{Account: &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Annotations: annotations}}}
	}
	allowed := in(map[string]string{key: "1111"})
	host := pod.ToHost(space, v, allowed)
	if host.Labels[label] != "true" || host.Labels["app"] != "web" {
		t.Errorf("the labels are %v", host.Labels)
	}
	if pod.PushLabels(space, v, allowed, host) {
		t.Error("a second push differs")
	}
	for name, in := range map[string]pod.Surroundings{"another client": in(map[string]string{key: "2222"}), "no annotation": in(nil), "no account": {}} {
		if other := pod.ToHost(space, v, in); other.Labels[label] != "" {
			t.Errorf("%s: the labels are %v", name, other.Labels)
		}
		have := host.DeepCopy()
		if pod.PushLabels(space, v, in, have); have.Labels[label] != "" || have.Labels["app"] != "web" {
			t.Errorf("%s, later: the labels are %v", name, have.Labels)
		}
	}
}

// S1: what the cloud adds to a host pod stays, and isn't reported as dropped.
func TestWhatACloudAddsToAPodStays(t *testing.T) {
	v := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{
		Name: "c", Image: "nginx", Env: []corev1.EnvVar{{Name: "A", Value: "1"}}, VolumeMounts: []corev1.VolumeMount{{Name: "v", MountPath: "/v"}},
	}}, Volumes: []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}}}
	space := translate.Space{Name: "mine"}
	sent := pod.ToHost(space, v, pod.Surroundings{})
	made := sent.DeepCopy()
	c := &made.Spec.Containers[0]
	c.Env = append([]corev1.EnvVar{{Name: "AWS_ROLE_ARN", Value: "role"}}, c.Env...)
	c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: "aws-iam-token", MountPath: "/var/run/secrets/eks.amazonaws.com/serviceaccount", ReadOnly: true})
	made.Spec.Volumes = append([]corev1.Volume{{Name: "aws-iam-token", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{}}}}, made.Spec.Volumes...)
	if dropped := pod.Dropped(sent, made); len(dropped) > 0 {
		t.Errorf("the tenant is told that %v was dropped", dropped)
	}
	have := made.DeepCopy()
	v.Spec.Containers[0].Image = "nginx:2"
	if !pod.Push(pod.ToHost(space, v, pod.Surroundings{}), have) || have.Spec.Containers[0].Image != "nginx:2" {
		t.Error("the image isn't updated")
	}
	if len(have.Spec.Volumes) != len(made.Spec.Volumes) || len(have.Spec.Containers[0].Env) != len(c.Env) || len(have.Spec.Containers[0].VolumeMounts) != len(c.VolumeMounts) {
		t.Errorf("after an update, the pod is %v", have.Spec)
	}
}
