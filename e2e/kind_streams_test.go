// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// S5: what kubectl does with a pod that runs, through a space, with real kubelets.
func (k *kindTest) streams(t *testing.T) {
	template := k.runs("streamed", "append", "/tmp/said", "hello", "--", "cat", "/tmp/said", "--", "serve", ":8080")
	template.Spec.Containers[0].Ports = []corev1.ContainerPort{{Name: "http", ContainerPort: 8080}}
	template.Spec.Containers[0].ReadinessProbe = &corev1.Probe{PeriodSeconds: 1, ProbeHandler: corev1.ProbeHandler{
		HTTPGet: &corev1.HTTPGetAction{Path: "/", Port: intstr.FromInt32(8080)},
	}}
	k.a.run(t, "default", &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "streamed", Labels: template.Labels}, Spec: template.Spec})
	must(k.a.CoreV1().Services("default").Create(t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "streamed"},
		Spec:       corev1.ServiceSpec{Selector: template.Labels, Ports: []corev1.ServicePort{{Name: "main", Port: 80, TargetPort: intstr.FromString("http")}}},
	}, metav1.CreateOptions{}))(t)

	t.Run("logs", k.readsLogs)
	for name, websockets := range map[string]string{"WebSocket": "true", "SPDY": "false"} {
		t.Run("over "+name, func(t *testing.T) {
			t.Setenv("KUBECTL_REMOTE_COMMAND_WEBSOCKETS", websockets)
			t.Setenv("KUBECTL_PORT_FORWARD_WEBSOCKETS", websockets)
			if out := k.a.kubectl(t, "exec", "streamed", "--", "/tool", "cat", "/tmp/said"); out != "hello\n" {
				t.Errorf("exec prints %q", out)
			}
			if out, err := k.a.tryKubectl(t, "", "exec", "streamed", "--", "/tool", "cat", "/none"); err == nil || !strings.Contains(out, "exit code 1") {
				t.Errorf("a command that fails: %v: %s", err, out)
			}
			for to, port := range map[string]string{"pod/streamed": ":8080", "service/streamed": ":80"} {
				if got := forward(t, k.a, to, port).reads(t, 0); !strings.HasPrefix(got, "streamed serves ") {
					t.Errorf("port-forward to %s reads %q", to, got)
				}
			}
		})
	}
	for _, path := range []string{"pods/streamed:8080", "services/streamed:80", "services/http:streamed:main"} {
		eventually(t, func() error {
			out, err := k.a.tryKubectl(t, "", "get", "--raw", "/api/v1/namespaces/default/"+path+"/proxy/")
			if err != nil || !strings.HasPrefix(out, "streamed serves ") {
				return fmt.Errorf("proxy of %s: %w: %s", path, err, out)
			}
			return nil
		})
	}
	t.Run("top", k.tops)
}

func (k *kindTest) readsLogs(t *testing.T) {
	for _, args := range [][]string{{"streamed"}, {"-l", "app=streamed", "--all-containers"}, {"streamed", "-c", "c", "--since=1h", "--tail=5"}} {
		if out := k.a.kubectl(t, append([]string{"logs"}, args...)...); !strings.HasPrefix(out, "hello\n") {
			t.Errorf("logs %v prints %q", args, out)
		}
	}
	if out, err := k.a.tryKubectl(t, "", "logs", "streamed", "-c", "none"); err == nil || !strings.Contains(out, "container none is not valid for pod streamed") {
		t.Errorf("logs of no container: %v: %s", err, out)
	}
	// One that ends, so that following it does.
	template := k.runs("ended", "append", "/tmp/said", "bye", "--", "cat", "/tmp/said")
	template.Spec.RestartPolicy = corev1.RestartPolicyNever
	must(k.a.CoreV1().Pods("default").Create(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "ended"}, Spec: template.Spec}, metav1.CreateOptions{}))(t)
	eventually(t, func() error { // while it is being created, kubelets refuse
		out, err := k.a.tryKubectl(t, "", "logs", "-f", "ended")
		for _, node := range k.nodes {
			if strings.Contains(out, node.Name) || strings.Contains(out, k.on(0)) {
				t.Errorf("logs -f tells of the host: %s", out)
			}
		}
		if err != nil || out != "bye\n" {
			return fmt.Errorf("logs -f: %w: %s", err, out)
		}
		return nil
	})
	// Once a minute, a kubelet tidies up, and takes a container that was made but not
	// started yet for the one to keep: then another pod has to do.
	for i := range 3 {
		if k.readsPrevious(t, fmt.Sprint("crashed-", i)) {
			return
		}
	}
	t.Error("no pod's previous container has its logs")
}

// readsPrevious reports whether the logs of a container that ended are there, once
// the pod has another. It is started once more only: of one that is started again
// and again, kubelets forget what it said.
func (k *kindTest) readsPrevious(t *testing.T, name string) (kept bool) {
	t.Helper()
	crashed := k.runs(name)
	crashed.Spec.Containers[0].Command = []string{"sh", "-c", "if [ -e /kept/mark ]; then exec /tool sleep; fi; echo again; >/kept/mark; exit 3"}
	crashed.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "kept", MountPath: "/kept"}}
	crashed.Spec.Volumes = []corev1.Volume{{Name: "kept", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
	must(k.a.CoreV1().Pods("default").Create(t.Context(), podOf(name, crashed), metav1.CreateOptions{}))(t)
	eventually(t, func() error {
		out, err := k.a.tryKubectl(t, "", "logs", "-p", name)
		switch {
		case err == nil && out == "again\n":
			kept = true
		case !strings.Contains(out, "unable to retrieve container logs for "):
			return fmt.Errorf("logs -p: %w: %s", err, out)
		}
		return nil
	})
	return kept
}

// tops tells what pods use.
func (k *kindTest) tops(t *testing.T) {
	eventually(t, func() error {
		out, err := k.a.tryKubectl(t, "", "top", "pods", "--containers")
		if err != nil || !strings.Contains(out, "streamed") {
			return fmt.Errorf("top: %w: %s; has the host metrics-server?", err, out)
		}
		for _, node := range k.nodes {
			if strings.Contains(out, node.Name) {
				t.Errorf("top tells of the host: %s", out)
			}
		}
		return nil
	})
}
