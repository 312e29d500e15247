// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
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
	pod := newPod("shell", func(p *corev1.Pod) { p.Spec.Containers[0].Image, p.Spec.Containers[0].Args = image, []string{"sleep"} })
	must(alice.CoreV1().Pods("default").Create(t.Context(), pod, metav1.CreateOptions{}))(t)
	alice.awaitRunning(t, "default", "shell")

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	cmd := exec.CommandContext(ctx, suite().command("kubectl"), "exec", "--stdin", "shell", "--", "sh", "-c", "echo entered; cat")
	cmd.Env = append(os.Environ(), "KUBECONFIG="+alice.kubeconfig, "HOME="+suite().dir, "KUBECACHEDIR="+filepath.Dir(alice.kubeconfig))
	var stdout, stderr buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	stdin := must(cmd.StdinPipe())(t)
	defer func() { _ = stdin.Close() }()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	eventually(t, func() error {
		if !strings.Contains(stdout.String(), "entered") {
			return fmt.Errorf("kubectl exec printed %q, %q", stdout.String(), stderr.String())
		}
		return nil
	})
	select {
	case err := <-ended:
		t.Fatalf("kubectl exec ended by itself: %v, %s", err, stderr.String())
	default:
	}

	host.kubectl(t, "patch", "tenant", tenant, "--type=json", "--patch", `[{"op": "remove", "path": "/spec/owners"}]`)
	select {
	case err := <-ended:
		t.Logf("kubectl exec ended: %v, %s", err, stderr.String())
	case <-time.After(revocationTime):
		t.Errorf("a former owner still has a shell after %s", revocationTime)
	}
}
