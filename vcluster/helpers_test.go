// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package vcluster_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"go.uber.org/goleak"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/berth-dev/berth/access"
	"github.com/berth-dev/berth/vcluster"
	"github.com/berth-dev/berth/vcluster/pki"
)

// testTimeout bounds every wait of these tests.
const testTimeout = time.Minute

// config is a space's configuration, in a directory of its own.
func config(t *testing.T, name string) vcluster.Config {
	t.Helper()
	serving, err := pki.OpenCA(t.TempDir(), "serving")
	if err != nil {
		t.Fatal(err)
	}
	return vcluster.Config{
		Name:        name,
		Dir:         t.TempDir(),
		Endpoint:    "https://berth.example:7443/spaces/" + name,
		ServingCA:   serving.PEM(),
		Controllers: vcluster.SpaceControllers(),
		Access:      &access.Source{},
	}
}

// start starts a control plane that is stopped with the test.
func start(t *testing.T, c vcluster.Config) *vcluster.ControlPlane {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	p, err := vcluster.Start(ctx, c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stop(t, p) })
	return p
}

func stop(t *testing.T, p *vcluster.ControlPlane) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	defer cancel()
	if err := p.Stop(ctx); err != nil {
		t.Error(err)
	}
}

func clientset(t *testing.T, c *rest.Config) *kubernetes.Clientset {
	t.Helper()
	client, err := kubernetes.NewForConfig(c)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// eventually calls f until it returns nil.
func eventually(t *testing.T, f func() error) {
	t.Helper()
	if err := until(t.Context(), f); err != nil {
		t.Fatal(err)
	}
}

// until calls f until it returns nil, and returns its last error if that takes
// too long.
func until(ctx context.Context, f func() error) error {
	var last error
	err := wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, testTimeout, true, func(context.Context) (bool, error) {
		last = f()
		return last == nil, nil
	})
	if err != nil {
		return fmt.Errorf("%w: %w", err, last)
	}
	return nil
}

// ignoredGoroutines are started once for the process, by upstream.
func ignoredGoroutines() []goleak.Option {
	return []goleak.Option{
		// klog writes its buffers every few seconds.
		goleak.IgnoreAnyFunction("k8s.io/klog/v2.(*flushDaemon).run.func1"),
	}
}

func quantity(s string) resource.Quantity { return resource.MustParse(s) }

var errEmpty = errors.New("it is empty")
