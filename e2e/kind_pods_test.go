// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// changing has a pod that runs on a real kubelet changed in all ways there are
// (S4): what it says of itself is what the tenant sees.
func (k *kindTest) changing(t *testing.T) {
	pods := k.a.CoreV1().Pods("default")
	spec := k.runs("changing", "sleep").Spec
	spec.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: "example.com/lb"}}
	spec.InitContainers = []corev1.Container{{
		Name: "sidecar", Image: k.tool, Args: []string{"sleep"}, RestartPolicy: ptr.To(corev1.ContainerRestartPolicyAlways),
	}}
	spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("20m")}
	spec.Volumes = []corev1.Volume{{Name: "t", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
		Sources: []corev1.VolumeProjection{{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token"}}},
	}}}}
	made := must(pods.Create(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "changing"}, Spec: spec}, metav1.CreateOptions{}))(t)

	await(t, pods.Get, "changing", func(v *corev1.Pod) error {
		return expect("the pod without an answer to its gate", conditionOf(v, corev1.ContainersReady)+conditionOf(v, corev1.PodReady), corev1.ConditionTrue+corev1.ConditionFalse)
	})
	patch := []byte(`{"status":{"conditions":[{"type":"example.com/lb","status":"True"}]}}`)
	must(pods.Patch(t.Context(), "changing", types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status"))(t)
	v := await(t, pods.Get, "changing", func(v *corev1.Pod) error {
		return expect("whether the pod is ready", conditionOf(v, corev1.PodReady), corev1.ConditionTrue)
	})
	if s := v.Status.InitContainerStatuses; len(s) != 1 || s[0].State.Running == nil || !ptr.Deref(s[0].Started, false) {
		t.Errorf("the sidecar's status is %+v", s)
	}

	resize := []byte(`{"spec":{"containers":[{"name":"c","resources":{"requests":{"cpu":"40m"}}}]}}`)
	must(pods.Patch(t.Context(), "changing", types.StrategicMergePatchType, resize, metav1.PatchOptions{}, "resize"))(t)
	// Kubelets before 1.34 tell neither of what generation a status is, nor what is allocated.
	told := must(k.host.CoreV1().Pods(k.on(0)).Get(t.Context(), containerSpaces[0]+"--default--changing", metav1.GetOptions{}))(t).Status.ObservedGeneration != 0
	await(t, pods.Get, "changing", func(v *corev1.Pod) error {
		c := v.Status.ContainerStatuses[0]
		if c.Resources == nil || told && v.Status.ObservedGeneration != v.Generation {
			return errors.New("the kubelet has not resized it")
		}
		if told {
			if err := expect("what is allocated to the container", c.AllocatedResources.Cpu().String(), "40m"); err != nil {
				return err
			}
		}
		return expect("what the container has", fmt.Sprint(c.Resources.Requests.Cpu(), c.RestartCount), "40m 0")
	})

	eventually(t, func() error {
		v, err := pods.Get(t.Context(), "changing", metav1.GetOptions{})
		if err != nil {
			return err
		}
		v.Spec.EphemeralContainers = []corev1.EphemeralContainer{{TargetContainerName: "c", EphemeralContainerCommon: corev1.EphemeralContainerCommon{
			Name: "debugger", Image: k.tool, Args: []string{"env", "--", "cat", "/t/token"}, Env: []corev1.EnvVar{{Name: "API", Value: "$(KUBERNETES_SERVICE_HOST)"}},
			VolumeMounts: []corev1.VolumeMount{{Name: "t", MountPath: "/t"}},
		}}}
		_, err = pods.UpdateEphemeralContainers(t.Context(), "changing", v, metav1.UpdateOptions{})
		return err
	})
	await(t, pods.Get, "changing", func(v *corev1.Pod) error {
		if s := v.Status.EphemeralContainerStatuses; len(s) != 1 || s[0].Name != "debugger" || s[0].State.Terminated == nil {
			return fmt.Errorf("statuses of ephemeral containers are %+v", s)
		}
		return expect("its exit code", v.Status.EphemeralContainerStatuses[0].State.Terminated.ExitCode, int32(0))
	})
	api := must(k.a.CoreV1().Services("default").Get(t.Context(), "kubernetes", metav1.GetOptions{}))(t)
	out := k.said(t, "changing", "debugger")
	if !strings.Contains(out, "API="+api.Spec.ClusterIP+"\n") {
		t.Errorf("the ephemeral container's environment is %q, want the space's API at %s", out, api.Spec.ClusterIP)
	}
	token := out[strings.LastIndex(out, "\n")+1:]
	review := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}
	review = must(k.a.AuthenticationV1().TokenReviews().Create(t.Context(), review, metav1.CreateOptions{}))(t)
	if uid := review.Status.User.Extra["authentication.kubernetes.io/pod-uid"]; len(uid) != 1 || uid[0] != string(made.UID) {
		t.Errorf("the token that the pod mounts is %+v of pod %s", review.Status, made.UID)
	}
}

// said is what a container of space a printed, as the space tells.
func (k *kindTest) said(t *testing.T, pod, container string) string {
	t.Helper()
	out := must(k.a.CoreV1().Pods("default").GetLogs(pod, &corev1.PodLogOptions{Container: container}).DoRaw(t.Context()))(t)
	return string(out)
}
