// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// hands has a user at a terminal do what users do with a pod that runs (S5).
func (k *kindTest) hands(t *testing.T) {
	template := k.runs("handled", "write", "/tmp/said", "hello", "--", "cat", "/tmp/said", "--", "serve", ":8080")
	k.a.run(t, "default", &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "handled", Labels: template.Labels}, Spec: template.Spec})

	t.Run("exec -it", func(t *testing.T) {
		for name, websockets := range map[string]string{"over WebSocket": "true", "over SPDY": "false"} {
			t.Run(name, func(t *testing.T) {
				t.Setenv("KUBECTL_REMOTE_COMMAND_WEBSOCKETS", websockets)
				out := k.a.terminal(t, "exec -it handled -- sh", "# ", "stty size", "exit")
				if !strings.Contains(out, "31 97") {
					t.Errorf("the container's terminal is not the size of the user's, 31 97: %q", out)
				}
			})
		}
		out := k.a.terminal(t, "exec -it handled -- sh -c 'exit 7'", "")
		if !strings.Contains(out, "exit code 7") {
			t.Errorf("a shell that ends with 7 says %q", out)
		}
	})
	t.Run("exec -i", func(t *testing.T) {
		if out, err := k.a.tryKubectl(t, "from afar", "exec", "-i", "handled", "--", "cat"); err != nil || out != "from afar" {
			t.Errorf("cat says %q (%v)", out, err)
		}
	})
	t.Run("cp", func(t *testing.T) {
		dir := t.TempDir()
		sent := strings.Repeat("0123456789abcdef", 1<<16) // a megabyte: more than one frame
		if err := os.WriteFile(filepath.Join(dir, "there"), []byte(sent), 0o600); err != nil {
			t.Fatal(err)
		}
		k.a.kubectl(t, "cp", filepath.Join(dir, "there"), "handled:/tmp/there")
		k.a.kubectl(t, "cp", "handled:/tmp/there", filepath.Join(dir, "back"))
		if back := must(os.ReadFile(filepath.Join(dir, "back")))(t); string(back) != sent {
			t.Errorf("%d bytes came back of %d, or others", len(back), len(sent))
		}
	})
	t.Run("debug", func(t *testing.T) {
		// Through the target's processes, the debugger sees the target's files.
		out := k.a.terminal(t, "debug -it handled --profile=baseline --image="+k.tool+" --target=c -- sh", "# ", "cat /proc/1/root/tmp/said", "exit")
		if !strings.Contains(out, "hello") {
			t.Errorf("the debugger says %q", out)
		}
	})
	t.Run("debug of a copy", func(t *testing.T) {
		k.a.kubectl(t, "debug", "handled", "--profile=baseline", "--copy-to=copied", "--container=c", "--", "/tool", "sleep")
		k.a.awaitRunning(t, "default", "copied")
	})
	t.Run("run --rm -it", func(t *testing.T) {
		out := k.a.terminal(t, "run passing --rm -it --restart=Never --image="+k.tool+" --command -- sh", "# ", "echo $(( 6 * 7 ))", "exit")
		if !strings.Contains(out, "\n42\r\n") || !strings.Contains(out, `pod "passing" deleted`) {
			t.Errorf("a pod of the moment says %q", out)
		}
	})
	t.Run("logs -f", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		follow := exec.CommandContext(ctx, suite().command("kubectl"), "logs", "-f", "handled", "-c", "c")
		follow.Env = append(os.Environ(), "KUBECONFIG="+k.a.kubeconfig)
		var out buffer
		follow.Stdout, follow.Stderr = &out, &out
		if err := follow.Start(); err != nil {
			t.Fatal(err)
		}
		defer func() { cancel(); _ = follow.Wait() }()
		eventually(t, func() error { return expect("what was said before", out.String(), "hello\n") })
		k.a.kubectl(t, "exec", "handled", "--", "sh", "-c", "echo and on >/proc/1/fd/1")
		eventually(t, func() error { return expect("what is said meanwhile", out.String(), "hello\nand on\n") })
	})
}

// terminal runs kubectl as a user at a terminal of 31 lines and 97 columns does,
// who waits for a prompt before each line. It returns all that was on the screen.
func (c *cluster) terminal(t *testing.T, command, prompt string, lines ...string) string {
	t.Helper()
	if err := suite().build(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	script := "stty rows 31 cols 97; " + suite().command("kubectl") + " " + command
	cmd := exec.CommandContext(ctx, "script", "--quiet", "--flush", "--command", script, "/dev/null")
	cmd.Env = append(os.Environ(), "KUBECONFIG="+c.kubeconfig, "HOME="+suite().dir, "TERM=dumb")
	var screen buffer
	cmd.Stdout, cmd.Stderr = &screen, &screen
	keyboard := must(cmd.StdinPipe())(t)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	entered := false
	for i, line := range lines {
		eventually(t, func() error {
			if strings.Contains(screen.String(), "try pressing enter") && !entered {
				entered = true // the first prompt was printed before anybody saw
				must(io.WriteString(keyboard, "\n"))(t)
			}
			if strings.Count(screen.String(), prompt) <= i {
				return fmt.Errorf("there is no prompt for %q: %q", line, screen.String())
			}
			return nil
		})
		must(io.WriteString(keyboard, line+"\n"))(t)
	}
	_ = cmd.Wait() // what a shell ends with is on the screen
	return screen.String()
}
