// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// checkPodOfItsOwn checks what the chart makes of the dedicated space chart-b (S3, T9): a pod with a claim, a memory limit, and no
// account of its own in Berth's namespace; its token is of the account of the space. What the space runs, runs.
func checkPodOfItsOwn(t *testing.T, host *cluster, image string) {
	t.Helper()
	space := forwarded(t, host, release, "chart-b")
	eventually(t, func() error {
		_, err := space.CoreV1().Namespaces().Get(t.Context(), "default", metav1.GetOptions{})
		return err
	})
	pod := host.awaitRunning(t, release, "berth-chart-b-dedicated-0")
	claim := must(host.CoreV1().PersistentVolumeClaims(release).Get(t.Context(), "data-berth-chart-b-dedicated-0", metav1.GetOptions{}))(t)
	if claim.Status.Phase != corev1.ClaimBound || pod.Spec.Containers[0].Resources.Limits.Memory().String() != "1Gi" {
		t.Errorf("its claim is %s, its memory is limited to %s", claim.Status.Phase, pod.Spec.Containers[0].Resources.Limits.Memory())
	}
	for _, v := range pod.Spec.Volumes {
		if v.Projected != nil || v.HostPath != nil || v.Secret != nil && v.Secret.SecretName != "berth-chart-b-dedicated" {
			t.Errorf("it mounts %s", v.Name)
		}
	}
	secret := must(host.CoreV1().Secrets(release).Get(t.Context(), "berth-chart-b-dedicated", metav1.GetOptions{}))(t)
	account := must(kubernetes.NewForConfig(withToken(host.config, string(secret.Data["host.token"]))))(t)
	if what := must(account.AuthenticationV1().SelfSubjectReviews().Create(t.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{}))(t); what.Status.UserInfo.Username != "system:serviceaccount:berth-chart-b:berth-syncer" {
		t.Errorf("its token is of %s", what.Status.UserInfo.Username)
	}
	if _, err := account.CoreV1().Pods(release).List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("its token lists Berth's pods: %v", err)
	}
	space.kubectl(t, "create", "deployment", "web", "--image="+pauseImage(t, host))
	space.kubectl(t, "rollout", "status", "deployment/web", "--timeout=120s")
	checkInside(t, space, "inside-dedicated", image)
}

// checkMoves moves a space to a pod of its own, copies and restores it there, moves it back, and deletes it from a pod.
func checkMoves(t *testing.T, host *cluster) {
	t.Helper()
	inBerth := func(args ...string) {
		host.kubectl(t, append([]string{"exec", "--namespace", release, "berth-0", "--", "berth", "snapshot"}, args...)...)
	}
	applySpace(t, host, "chart-e", "{}")
	space := forwarded(t, host, release, "chart-e")
	made := must(space.CoreV1().ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "kept"}}, metav1.CreateOptions{}))(t)
	space.kubectl(t, "create", "deployment", "web", "--image="+pauseImage(t, host))
	space.kubectl(t, "rollout", "status", "deployment/web", "--timeout=120s")
	running := must(host.CoreV1().Pods("berth-chart-e").List(t.Context(), metav1.ListOptions{LabelSelector: "app=web"}))(t).Items[0]
	check := func() {
		t.Helper()
		eventually(t, func() error {
			kept, err := space.CoreV1().ConfigMaps("default").Get(t.Context(), "kept", metav1.GetOptions{})
			if err == nil && kept.UID != made.UID {
				err = errors.New("the config map is another one")
			}
			return err
		})
		if still := host.awaitRunning(t, "berth-chart-e", running.Name); still.UID != running.UID || still.Status.ContainerStatuses[0].RestartCount > 0 {
			t.Error("what the space runs was disturbed")
		}
	}
	isolate := func(as string) {
		t.Helper()
		host.kubectl(t, "patch", "space", "chart-e", "--type", "merge", "--patch", `{"spec": {"isolation": "`+as+`"}}`)
	}
	isolate("Dedicated")
	host.awaitRunning(t, release, "berth-chart-e-dedicated-0")
	awaitReady(t, host, "chart-e", "True")
	check()
	inBerth("create", "chart-e", "--to", "file:///tmp/snapshots")
	if err := space.CoreV1().ConfigMaps("default").Delete(t.Context(), "kept", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	inBerth("restore", "chart-e", "--from", "file:///tmp/snapshots")
	check()
	isolate("Shared")
	host.kubectl(t, "annotate", "space", "chart-e", "berth.dev/trust-dedicated=true")
	awaitGone(t, "the StatefulSet", host.AppsV1().StatefulSets(release).Get, "berth-chart-e-dedicated")
	awaitGone(t, "the claim", host.CoreV1().PersistentVolumeClaims(release).Get, "data-berth-chart-e-dedicated-0")
	check()
	isolate("Dedicated")
	host.awaitRunning(t, release, "berth-chart-e-dedicated-0")
	awaitReady(t, host, "chart-e", "True")
	check()
	host.kubectl(t, "delete", "space", "chart-e", "--wait", "--timeout=180s")
	awaitGone(t, "the StatefulSet", host.AppsV1().StatefulSets(release).Get, "berth-chart-e-dedicated")
	awaitGone(t, "the claim", host.CoreV1().PersistentVolumeClaims(release).Get, "data-berth-chart-e-dedicated-0")
	awaitGone(t, "the Secret", host.CoreV1().Secrets(release).Get, "berth-chart-e-dedicated")
	awaitGone(t, "the space's namespace", host.CoreV1().Namespaces().Get, "berth-chart-e")
}
