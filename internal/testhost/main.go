// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package testhost

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
)

const (
	// Timeout bounds every wait of the tests.
	Timeout = 90 * time.Second
	// pause is between two looks at a condition.
	pause = 50 * time.Millisecond
)

// Main runs a package's tests on what start makes for all of them, and returns
// the exit code.
func Main[T io.Closer](m *testing.M, start func() (T, error)) int {
	flag.Parse()
	if err := quiet(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	shared, err := start()
	if err != nil {
		fmt.Fprintln(os.Stderr, "start what the tests stand on:", err)
		return 1
	}
	code := m.Run()
	if err := shared.Close(); err != nil {
		fmt.Fprintln(os.Stderr, "stop what the tests stand on:", err)
		return 1
	}
	return code
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

// Clientset is a client of the cluster that config reaches.
func Clientset(t *testing.T, config *rest.Config) kubernetes.Interface {
	t.Helper()
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// Eventually waits until check returns nil.
func Eventually(t testing.TB, what string, check func(context.Context) error) {
	t.Helper()
	var last error
	err := wait.PollUntilContextTimeout(t.Context(), pause, Timeout, true, func(ctx context.Context) (bool, error) {
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
