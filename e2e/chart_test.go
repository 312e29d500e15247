// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
)

// The cluster with real containers that tests need which install the chart: its
// admin's kubeconfig, and the name of an image of Berth that its nodes have.
const (
	envKubeconfig = "E2E_KUBECONFIG"
	envImage      = "E2E_IMAGE"
)

// release is what the tests install, and in which namespace.
const release = "berth-chart-test"

// X1, X5: on a cluster with real containers, Berth is installed, tested, upgraded
// and uninstalled by Helm; a space outlives its pod, and what it runs the release.
func TestTheChartOnARealCluster(t *testing.T) {
	host, images := realCluster(t, envImage)
	image := images[0]
	values := []string{"../charts/berth", "--namespace", release, "--take-ownership", "--wait", "--timeout", "6m", "--set", ofImage(image) +
		",operator.enabled=false,storage.size=1Gi,networkPolicy.enabled=true,podDisruptionBudget.enabled=true,spaces[0].name=chart-a,spaces[1].name=chart-b,spaces[1].spec.isolation=Dedicated"}
	ownRelease(t, host, release, "chart-a", "chart-b", "chart-c", "chart-d", "chart-e")
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: release, Labels: map[string]string{"pod-security.kubernetes.io/enforce": "restricted"}}}
	must(host.CoreV1().Namespaces().Create(t.Context(), namespace, metav1.CreateOptions{}))(t)

	if out := helm(t, append([]string{"install", "berth"}, values...)...); !strings.Contains(out, "helm test berth --namespace "+release) {
		t.Errorf("the notes say:\n%s", out)
	}
	helmTest(t, "chart-a", "chart-b")
	space := forwarded(t, host, release, "chart-a")
	settings := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "kept"}, Data: map[string]string{"a": "b"}}
	made := must(space.CoreV1().ConfigMaps("default").Create(t.Context(), settings, metav1.CreateOptions{}))(t)
	pod := newPod("real", func(p *corev1.Pod) { p.Spec.Containers[0].Image = pauseImage(t, host) })
	must(space.CoreV1().Pods("default").Create(t.Context(), pod, metav1.CreateOptions{}))(t)
	running := host.awaitRunning(t, "berth-chart-a", "chart-a--default--real")
	space.awaitRunning(t, "default", "real")

	t.Run("a pod of a space reaches its API by name", func(t *testing.T) { checkInside(t, space, "inside", image) })
	t.Run("a dedicated space has a pod of its own", func(t *testing.T) { checkPodOfItsOwn(t, host, image) })
	dedicated := must(host.CoreV1().Pods(release).Get(t.Context(), "berth-chart-b-dedicated-0", metav1.GetOptions{}))(t)
	t.Run("a pod of Berth's that dies is replaced, and the space is as it was", func(t *testing.T) {
		before := must(host.CoreV1().Pods(release).Get(t.Context(), "berth-0", metav1.GetOptions{}))(t)
		// By force: the next one may start while this one still ends.
		if err := host.CoreV1().Pods(release).Delete(t.Context(), before.Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64)}); err != nil {
			t.Fatal(err)
		}
		await(t, host.CoreV1().Pods(release).Get, before.Name, func(after *corev1.Pod) error {
			if after.UID == before.UID || !isRunning(after) {
				return errors.New("there is no new pod yet")
			}
			return nil
		})
		space := forwarded(t, host, release, "chart-a")
		checkKept(t, space, host, made, running)
		checkInside(t, space, "inside-again", image)
		checkInside(t, forwarded(t, host, release, "chart-b"), "inside-dedicated-again", image)
		if still := must(host.CoreV1().Pods(release).Get(t.Context(), dedicated.Name, metav1.GetOptions{}))(t); still.UID != dedicated.UID || still.Status.ContainerStatuses[0].RestartCount > 0 {
			t.Error("the pod of the dedicated space did not run on")
		}
	})
	t.Run("a space moves to a pod of its own and back, and goes with it", func(t *testing.T) { checkMoves(t, host) })
	t.Run("an upgrade adds a space, and keeps those that were there", func(t *testing.T) {
		helm(t, append([]string{"upgrade", "berth"}, append(values, "--set", "spaces[2].name=chart-c,log.verbosity=1")...)...)
		helmTest(t, "chart-a", "chart-b", "chart-c")
		checkKept(t, forwarded(t, host, release, "chart-a"), host, made, running)
	})
	t.Run("a space comes and goes with kubectl, without an upgrade", func(t *testing.T) {
		applySpace(t, host, "chart-d", "{}")
		must(forwarded(t, host, release, "chart-d").CoreV1().Namespaces().Get(t.Context(), "default", metav1.GetOptions{}))(t)
		host.kubectl(t, "delete", "space", "chart-d", "--wait", "--timeout=120s")
		awaitGone(t, "the space's namespace", host.CoreV1().Namespaces().Get, "berth-chart-d")
		checkKept(t, forwarded(t, host, release, "chart-a"), host, made, running)
	})
	t.Run("a snapshot takes the place of the space that was added", func(t *testing.T) {
		inPod := func(args ...string) {
			host.kubectl(t, append([]string{"exec", "--namespace", release, "berth-0", "--", "berth", "snapshot"}, args...)...)
		}
		inPod("create", "chart-a", "--to", "file:///tmp/snapshots")
		inPod("restore", "chart-a", "--as", "chart-c", "--replace", "--from", "file:///tmp/snapshots")
		other := forwarded(t, host, release, "chart-c")
		host.awaitRunning(t, "berth-chart-c", "chart-c--default--real")
		other.awaitRunning(t, "default", "real")
		if copied := must(other.CoreV1().ConfigMaps(made.Namespace).Get(t.Context(), made.Name, metav1.GetOptions{}))(t); copied.Data["a"] != "b" {
			t.Errorf("it holds %v", copied.Data)
		}
		checkInside(t, other, "inside-copy", image)
		checkKept(t, forwarded(t, host, release, "chart-a"), host, made, running)
	})
	t.Run("uninstalled and installed again, it goes on where it was", func(t *testing.T) {
		helm(t, "uninstall", "berth", "--namespace", release, "--wait", "--timeout", "2m")
		awaitGone(t, "Berth's pod", host.CoreV1().Pods(release).Get, "berth-0")
		for _, left := range []string{"clusterroles", "clusterrolebindings", "validatingadmissionpolicies", "validatingadmissionpolicybindings"} {
			if out := host.kubectl(t, "get", left, "-l", "app.kubernetes.io/instance=berth", "-o", "name"); out != "" {
				t.Errorf("uninstalling leaves %s", out)
			}
		}
		if out := host.kubectl(t, "get", "customresourcedefinition", "spaces.berth.dev", "-o", "name"); out == "" {
			t.Error("uninstalling removes the definition of spaces, and all of them with it")
		}
		if still := host.awaitRunning(t, "berth-chart-a", running.Name); still.UID != running.UID {
			t.Error("what the space ran went with the release")
		}
		helm(t, append([]string{"install", "berth"}, values...)...)
		checkKept(t, forwarded(t, host, release, "chart-a"), host, made, running)
	})
}

// checkInside has a pod of a space look up its API by DNS and use it with the
// token and the CA that it was given (S6).
func checkInside(t *testing.T, space *cluster, name, image string) {
	t.Helper()
	const kubeconfig = `{apiVersion: v1, kind: Config, current-context: own, contexts: [{name: own, context: {cluster: own, user: own}}],
clusters: [{name: own, cluster: {server: "https://kubernetes.default.svc", certificate-authority: /var/run/secrets/kubernetes.io/serviceaccount/ca.crt}}],
users: [{name: own, user: {tokenFile: /var/run/secrets/kubernetes.io/serviceaccount/token}}]}`
	ns := space.namespace(t, name)
	config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "own"}, Data: map[string]string{"inside": kubeconfig}}
	must(space.CoreV1().ConfigMaps(ns).Create(t.Context(), config, metav1.CreateOptions{}))(t)
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "view"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: ns, Name: "default"}},
	}
	must(space.RbacV1().ClusterRoleBindings().Create(t.Context(), binding, metav1.CreateOptions{}))(t)
	t.Cleanup(func() {
		_ = space.RbacV1().ClusterRoleBindings().Delete(context.WithoutCancel(t.Context()), binding.Name, metav1.DeleteOptions{})
	})
	pod := newPod("asks", func(p *corev1.Pod) {
		p.Spec.RestartPolicy = corev1.RestartPolicyNever
		p.Spec.Containers[0].Image = image
		p.Spec.Containers[0].Args = []string{"check", "--timeout", "60s", "/config/inside"}
		p.Spec.Containers[0].TerminationMessagePolicy = corev1.TerminationMessageFallbackToLogsOnError
		p.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "config", MountPath: "/config"}}
		p.Spec.Volumes = []corev1.Volume{{Name: "config", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "own"}}}}}
	})
	must(space.CoreV1().Pods(ns).Create(t.Context(), pod, metav1.CreateOptions{}))(t)
	await(t, space.CoreV1().Pods(ns).Get, pod.Name, func(p *corev1.Pod) error {
		if p.Status.Phase == corev1.PodFailed {
			t.Fatalf("it does not: %v", p.Status.ContainerStatuses[0].State.Terminated)
		}
		return expect("the pod", p.Status.Phase, corev1.PodSucceeded)
	})
}

// pauseImage is an image that each node has, and that runs until it is stopped.
func pauseImage(t *testing.T, host *cluster) string {
	t.Helper()
	for _, node := range must(host.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{}))(t).Items {
		for _, image := range node.Status.Images {
			for _, name := range image.Names {
				if strings.Contains(name, "/pause:") {
					return name
				}
			}
		}
	}
	t.Fatal("no node has the image of pods' sandboxes")
	return ""
}

// helmTest runs `helm test` and checks that it asked each space.
func helmTest(t *testing.T, spaces ...string) {
	t.Helper()
	out := helm(t, "test", "berth", "--namespace", release, "--logs", "--timeout", "6m")
	for _, space := range spaces {
		if !strings.Contains(out, space+": ready, Kubernetes v1.") {
			t.Errorf("helm test says nothing of %s:\n%s", space, out)
		}
	}
}

// checkKept checks that a space holds what it held, and runs what it ran.
func checkKept(t *testing.T, space, host *cluster, made *corev1.ConfigMap, running *corev1.Pod) {
	t.Helper()
	if kept := must(space.CoreV1().ConfigMaps(made.Namespace).Get(t.Context(), made.Name, metav1.GetOptions{}))(t); kept.UID != made.UID {
		t.Errorf("the space's config map is %s, want %s", kept.UID, made.UID)
	}
	if still := host.awaitRunning(t, running.Namespace, running.Name); still.UID != running.UID || still.Status.ContainerStatuses[0].RestartCount > 0 {
		t.Error("what the space runs was disturbed")
	}
	space.awaitRunning(t, "default", "real")
}

// kubeconfigOf waits for the kubeconfig of a space of a release: Berth is ready
// before its spaces are.
func kubeconfigOf(t *testing.T, host *cluster, release, space string) (kubeconfig []byte) {
	t.Helper()
	eventually(t, func() error {
		secret, err := host.CoreV1().Secrets(release).Get(t.Context(), space+"-kubeconfig", metav1.GetOptions{})
		if err == nil {
			kubeconfig = secret.Data["kubeconfig"]
		}
		return err
	})
	return kubeconfig
}

// forwarded is a space through a port that is forwarded to the Service of a
// release, as the notes say, until the test ends or Berth's pod does. The release
// is named berth, in a namespace of the given name.
func forwarded(t *testing.T, host *cluster, release, space string) *cluster {
	t.Helper()
	_, port, err := net.SplitHostPort(forward(t, host, "--namespace", release, "service/berth", ":443").local[0])
	if err != nil {
		t.Fatal(err)
	}
	config := must(clientcmd.Load(kubeconfigOf(t, host, release, space)))(t)
	for _, c := range config.Clusters {
		c.Server = fmt.Sprintf("https://localhost:%s/spaces/%s", port, space)
	}
	path := filepath.Join(t.TempDir(), space+".kubeconfig")
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		t.Fatal(err)
	}
	return newCluster(t, path)
}
