// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"regexp"
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
			for _, to := range []string{"pod/streamed", "service/streamed"} {
				if got := k.forwards(t, to); !strings.HasPrefix(got, "streamed serves ") {
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
	// One that is started once more: of one that is started again and again,
	// kubelets forget what it said.
	crashed := k.runs("crashed")
	crashed.Spec.Containers[0].Command = []string{"sh", "-c", "if [ -e /kept/mark ]; then exec /tool sleep; fi; echo again; >/kept/mark; exit 3"}
	crashed.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "kept", MountPath: "/kept"}}
	crashed.Spec.Volumes = []corev1.Volume{{Name: "kept", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
	must(k.a.CoreV1().Pods("default").Create(t.Context(), podOf("crashed", crashed), metav1.CreateOptions{}))(t)
	eventually(t, func() error {
		out, err := k.a.tryKubectl(t, "", "logs", "-p", "crashed")
		if err != nil || out != "again\n" {
			return fmt.Errorf("logs -p: %w: %s", err, out)
		}
		return nil
	})
}

// forwards is what a GET of port 8080 of a pod, or 80 of a service, reads through
// kubectl port-forward.
func (k *kindTest) forwards(t *testing.T, to string) string {
	t.Helper()
	port := ":8080"
	if strings.HasPrefix(to, "service/") {
		port = ":80"
	}
	ctx, cancel := context.WithCancel(t.Context())
	cmd := exec.CommandContext(ctx, suite().command("kubectl"), "port-forward", to, port)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+k.a.kubeconfig)
	out := must(cmd.StdoutPipe())(t)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { cancel(); _ = cmd.Wait() }()
	line, err := bufio.NewReader(out).ReadString('\n')
	found := regexp.MustCompile(`^Forwarding from (127\.0\.0\.1:\d+) `).FindStringSubmatch(line)
	if found == nil {
		t.Fatalf("kubectl port-forward %s says %q (%v)", to, line, err)
	}
	r := must(http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+found[1]+"/", http.NoBody))(t)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	return string(must(io.ReadAll(resp.Body))(t))
}

// tops tells what pods use, where the host does.
func (k *kindTest) tops(t *testing.T) {
	want := "Metrics API not available"
	if k.hasMetrics() {
		want = "streamed"
	}
	eventually(t, func() error {
		out, err := k.a.tryKubectl(t, "", "top", "pods", "--containers")
		if !strings.Contains(out, want) {
			return fmt.Errorf("top: %w: %s", err, out)
		}
		for _, node := range k.nodes {
			if strings.Contains(out, node.Name) {
				t.Errorf("top tells of the host: %s", out)
			}
		}
		return nil
	})
}

// hasMetrics says whether the host tells what pods use.
func (k *kindTest) hasMetrics() bool {
	_, err := k.host.Discovery().ServerResourcesForGroupVersion("metrics.k8s.io/v1beta1")
	return err == nil
}
