// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// revocationTime is how long a former owner may keep a connection.
const revocationTime = time.Minute

// X2: alice, an owner of a tenant, has a shell in a container. It ends when she is an owner no longer.
func checkExecEnds(t *testing.T, host *cluster, node corev1.Node, tenant, image string) {
	t.Helper()
	secret := awaitOwnerSecrets(t, host, tenantsRelease, tenant, "User alice")["User alice"]
	alice := reachedWith(t, host, node, tenantsRelease, tenant, secret.Data["kubeconfig"])
	pod := newPod("shell", func(p *corev1.Pod) {
		p.Spec.Containers[0].Image, p.Spec.Containers[0].Args = image, []string{"serve", ":8080"}
	})
	must(alice.CoreV1().Pods("default").Create(t.Context(), pod, metav1.CreateOptions{}))(t)
	alice.awaitRunning(t, "default", "shell")
	shell := enter(t, alice, "shell")
	host.kubectl(t, "patch", "tenant", tenant, "--type=json", "--patch", `[{"op": "remove", "path": "/spec/owners"}]`)
	shell.endsWithin(t, revocationTime)
}

// entered is a kubectl exec with a shell that runs until its connection ends.
type entered struct {
	stdout, stderr buffer
	ended          chan error
}

// enter runs a shell in a pod by kubectl exec, and returns once it does.
func enter(t *testing.T, c *cluster, pod ...string) *entered {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	cmd := exec.CommandContext(ctx, suite().command("kubectl"), slices.Concat([]string{"exec", "--stdin"}, pod, []string{"--", "sh", "-c", "echo entered; cat"})...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+c.kubeconfig, "HOME="+suite().dir, "KUBECACHEDIR="+filepath.Dir(c.kubeconfig))
	e := &entered{ended: make(chan error, 1)}
	cmd.Stdout, cmd.Stderr = &e.stdout, &e.stderr
	stdin := must(cmd.StdinPipe())(t)
	if err := cmd.Start(); err != nil {
		cancel()
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		e.ended <- cmd.Wait()
	}()
	t.Cleanup(func() {
		cancel()
		<-done
		_ = stdin.Close()
	})
	eventually(t, func() error {
		if !strings.Contains(e.stdout.String(), "entered") {
			return fmt.Errorf("kubectl exec printed %q, %q", e.stdout.String(), e.stderr.String())
		}
		return nil
	})
	e.goesOn(t)
	return e
}

// goesOn checks that the shell has not ended.
func (e *entered) goesOn(t *testing.T) {
	t.Helper()
	select {
	case err := <-e.ended:
		t.Fatalf("kubectl exec ended by itself: %v, %s", err, e.stderr.String())
	default:
	}
}

// endsWithin checks that the shell ends.
func (e *entered) endsWithin(t *testing.T, limit time.Duration) {
	t.Helper()
	began := time.Now()
	select {
	case err := <-e.ended:
		t.Logf("kubectl exec ended after %s: %v, %s", time.Since(began).Round(time.Millisecond), err, e.stderr.String())
	case <-time.After(limit):
		t.Errorf("kubectl exec goes on after %s", limit)
	}
}
