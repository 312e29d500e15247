// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
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
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

const (
	// testTimeout is how long anything that is awaited may take. Nothing should
	// come near, but machines that run tests are slow at times.
	testTimeout = 180 * time.Second
	// interval is how often to look.
	interval = 50 * time.Millisecond
)

// cluster is one Kubernetes API, as a user with all rights in it sees it.
type cluster struct {
	kubernetes.Interface
	dynamic    dynamic.Interface
	config     *rest.Config
	kubeconfig string
}

func newCluster(t *testing.T, kubeconfig string) *cluster {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	config.QPS = -1
	config.WarningHandler = rest.NoWarnings{}
	c := &cluster{config: config, kubeconfig: kubeconfig}
	if c.Interface, err = kubernetes.NewForConfig(config); err != nil {
		t.Fatal(err)
	}
	if c.dynamic, err = dynamic.NewForConfig(config); err != nil {
		t.Fatal(err)
	}
	return c
}

// as returns the same API for a user and groups that are impersonated.
func (c *cluster) as(t *testing.T, user string, groups ...string) *cluster {
	t.Helper()
	config := rest.CopyConfig(c.config)
	config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: groups}
	clientset, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return &cluster{Interface: clientset, config: config}
}

// kubectl runs kubectl and returns what it printed; it must succeed.
func (c *cluster) kubectl(t *testing.T, args ...string) string {
	t.Helper()
	out, err := c.tryKubectl(t, "", args...)
	if err != nil {
		t.Fatalf("kubectl %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

// apply gives kubectl a manifest; it must succeed.
func (c *cluster) apply(t *testing.T, manifest string, args ...string) string {
	t.Helper()
	out, err := c.tryKubectl(t, manifest, append([]string{"apply", "-f", "-"}, args...)...)
	if err != nil {
		t.Fatalf("kubectl apply %s: %v\n%s\n%s", strings.Join(args, " "), err, out, manifest)
	}
	return out
}

// tryKubectl runs kubectl and returns what it printed, errors included.
func (c *cluster) tryKubectl(t *testing.T, stdin string, args ...string) (string, error) {
	t.Helper()
	if err := suite().build(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*testTimeout)
	defer cancel()
	return c.runKubectl(ctx, stdin, args...)
}

func (c *cluster) runKubectl(ctx context.Context, stdin string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, suite().command("kubectl"), args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+c.kubeconfig, "HOME="+suite().dir, "KUBECACHEDIR="+filepath.Dir(c.kubeconfig))
	cmd.Stdin = strings.NewReader(stdin)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	return out.String(), err
}

// namespace makes a namespace of the test's own in a space, which goes with the
// test, and returns its name.
func (c *cluster) namespace(t *testing.T, name string) string {
	t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if _, err := c.CoreV1().Namespaces().Create(t.Context(), ns, metav1.CreateOptions{}); err != nil {
		t.Fatalf("make namespace %s: %v", name, err)
	}
	t.Cleanup(func() {
		_ = c.CoreV1().Namespaces().Delete(context.WithoutCancel(t.Context()), name, metav1.DeleteOptions{})
	})
	// Pods are refused until it is there.
	await(t, c.CoreV1().ServiceAccounts(name).Get, "default", there)
	return name
}

// eventually returns once check does without an error, and fails the test with
// the last one if that takes too long.
func eventually(t *testing.T, check func() error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	for {
		began := time.Now()
		err := check()
		if err == nil {
			return
		}
		// A check that starts a program takes so much of a processor that what it waits for would take longer.
		pause := min(max(interval, 2*time.Since(began)), time.Second)
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			t.Fatalf("not within %s: %v", testTimeout, err)
		}
	}
}

// must returns value, and fails the test on an error.
func must[T any](value T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
}

// expect is an error unless got is as wanted.
func expect[T comparable](what string, got, want T) error {
	if got != want {
		return fmt.Errorf("%s is %v, want %v", what, got, want)
	}
	return nil
}
