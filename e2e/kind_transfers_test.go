// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// S5, N1: what is sent through a space arrives whole, in both protocols, from
// real container runtimes; and these are not quoted.
func (k *kindTest) transfers(t *testing.T) {
	k.a.run(t, "default", &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "carrier"}, Spec: k.runs("carrier", "serve", ":8080").Spec})
	for name, websockets := range map[string]string{"WebSocket": "true", "SPDY": "false"} {
		t.Run("over "+name, func(t *testing.T) {
			t.Setenv("KUBECTL_REMOTE_COMMAND_WEBSOCKETS", websockets)
			t.Setenv("KUBECTL_PORT_FORWARD_WEBSOCKETS", websockets)
			k.copies(t)
			k.answers(t)
			k.attaches(t, strings.ToLower(name))
			k.forwardsSeveral(t)
		})
	}
}

// copies copies a large file to a pod and back.
func (k *kindTest) copies(t *testing.T) {
	t.Helper()
	const size = 100 << 20
	dir := t.TempDir()
	up, down := filepath.Join(dir, "up"), filepath.Join(dir, "down")
	content := make([]byte, size)
	_, _ = rand.NewChaCha8([32]byte{}).Read(content)
	if err := os.WriteFile(up, content, 0o600); err != nil {
		t.Fatal(err)
	}
	k.a.kubectl(t, "cp", up, "carrier:/tmp/copied")
	k.a.kubectl(t, "cp", "carrier:/tmp/copied", down)
	if back := must(os.ReadFile(down))(t); !bytes.Equal(back, content) {
		t.Errorf("%d bytes came back, others than were sent", len(back))
	}
}

// answers tells how a command ended, and what was wrong with one that could not begin.
func (k *kindTest) answers(t *testing.T) {
	t.Helper()
	out, err := k.a.tryKubectl(t, "hello\n", "exec", "-i", "carrier", "--", "sh", "-c", "cat; echo and on >&2; exit 7")
	if err == nil || !strings.Contains(out, "hello\n") || !strings.Contains(out, "and on\n") || !strings.Contains(out, "exit code 7") {
		t.Errorf("exec -i prints %q, %v", out, err)
	}
	out, err = k.a.tryKubectl(t, "", "exec", "carrier", "--", "/none")
	if err == nil || !strings.Contains(out, "/none") || !strings.Contains(out, "no such file") {
		t.Errorf("a program that is not there: %v: %s", err, out)
	}
	k.tellsNothing(t, out)
}

func (k *kindTest) tellsNothing(t *testing.T, text string) {
	t.Helper()
	for _, node := range k.nodes {
		for _, address := range node.Status.Addresses {
			if strings.Contains(text, address.Address) {
				t.Errorf("a stream tells of the host: %s", text)
			}
		}
	}
	if strings.Contains(text, k.on(0)) || strings.Contains(text, "netns") {
		t.Errorf("a stream tells of the host: %s", text)
	}
}

// attaches gives a container its input, and reads its output to the end.
func (k *kindTest) attaches(t *testing.T, name string) {
	t.Helper()
	template := k.runs("attached-" + name)
	template.Spec.Containers[0].Command = []string{"sh", "-c", "cat"}
	template.Spec.Containers[0].Stdin, template.Spec.Containers[0].StdinOnce = true, true
	template.Spec.RestartPolicy = corev1.RestartPolicyNever
	k.a.run(t, "default", &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "attached-" + name}, Spec: template.Spec})
	if out, err := k.a.tryKubectl(t, "hello\n", "attach", "-i", "attached-"+name); err != nil || !strings.Contains(out, "hello\n") {
		t.Errorf("attach prints %q, %v", out, err)
	}
}

// forwardsSeveral forwards a port that answers and one that is closed.
func (k *kindTest) forwardsSeveral(t *testing.T) {
	t.Helper()
	f := forward(t, k.a, "pod/carrier", ":8080", ":8081")
	for range 3 {
		if body := f.reads(t, 0); !strings.HasPrefix(body, "carrier serves ") {
			t.Errorf("port 8080 says %q", body)
		}
	}
	closed := must((&net.Dialer{}).DialContext(t.Context(), "tcp", f.local[1]))(t)
	_, _ = io.Copy(io.Discard, closed) // kubectl ends over it, and says why
	_ = closed.Close()
	<-f.done
	if got := f.stderr.String(); !strings.Contains(got, "error forwarding port 8081 to pod carrier: connection refused") {
		t.Errorf("port-forward to a closed port says %q", got)
	}
	k.tellsNothing(t, f.stderr.String())
}
