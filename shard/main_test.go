// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package shard_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/berth-dev/berth/host"
	"github.com/berth-dev/berth/vcluster/pki"
)

// patience bounds every wait of these tests.
const patience = 90 * time.Second

// shared is the one host cluster of all tests here; each test has a space of
// its own on it.
var shared = sync.OnceValues(func() (*hostCluster, error) {
	dir, err := os.MkdirTemp("", "berth-shard-test-")
	if err != nil {
		return nil, err
	}
	ca, err := pki.OpenCA(filepath.Join(dir, "serving"), "serving")
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cluster, err := host.Start(ctx, host.Options{
		Dir: filepath.Join(dir, "host"), Endpoint: "https://berth.example:7443/spaces/system", ServingCA: ca.PEM(),
	})
	if err != nil {
		return nil, err
	}
	return &hostCluster{Cluster: cluster, dir: dir, servingCA: ca.PEM()}, nil
})

type hostCluster struct {
	*host.Cluster
	dir       string
	servingCA []byte
}

func TestMain(m *testing.M) {
	flag.Parse()
	if err := quiet(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	cluster, err := shared()
	if err != nil {
		fmt.Fprintln(os.Stderr, "start the host of the tests:", err)
		os.Exit(1)
	}
	code := m.Run()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := cluster.Stop(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "stop the host of the tests:", err)
		code = 1
	}
	_ = os.RemoveAll(cluster.dir)
	os.Exit(code)
}

// quiet keeps the logs of many API servers out of a test's output, but for -v.
func quiet() error {
	if testing.Verbose() {
		return nil
	}
	flags := flag.NewFlagSet("klog", flag.ContinueOnError)
	klog.InitFlags(flags)
	klog.SetOutput(io.Discard)
	return errors.Join(flags.Set("logtostderr", "false"), flags.Set("stderrthreshold", "FATAL"))
}

func theHost(t *testing.T) *hostCluster {
	t.Helper()
	cluster, err := shared()
	if err != nil {
		t.Fatal(err)
	}
	return cluster
}

func clientset(t *testing.T, config *rest.Config) kubernetes.Interface {
	t.Helper()
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// eventually waits until check returns nil.
func eventually(t *testing.T, what string, check func(context.Context) error) {
	t.Helper()
	var last error
	err := wait.PollUntilContextTimeout(t.Context(), 100*time.Millisecond, patience, true, func(ctx context.Context) (bool, error) {
		err := check(ctx)
		if ctx.Err() == nil || last == nil {
			last = err
		}
		return err == nil, nil
	})
	if err != nil {
		t.Fatalf("%s: %v: %v", what, err, last)
	}
}
