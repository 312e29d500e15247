// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package streams_test

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"sync"
	"testing"

	"k8s.io/klog/v2"
)

// shared is the one bed of all tests here; each test has a space of its own on it.
var shared = sync.OnceValues(func() (*bed, error) {
	dir, err := os.MkdirTemp("", "berth-streams-test-")
	if err != nil {
		return nil, err
	}
	b, err := newBed(dir)
	if b != nil {
		b.closes = append([]func(){func() { _ = os.RemoveAll(dir) }}, b.closes...)
	}
	return b, err
})

func TestMain(m *testing.M) {
	flag.Parse()
	if err := quiet(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	b, err := shared()
	if err != nil {
		fmt.Fprintln(os.Stderr, "start the bed of the tests:", err)
		os.Exit(1)
	}
	code := m.Run()
	if err := b.stop(); err != nil {
		fmt.Fprintln(os.Stderr, "stop the bed of the tests:", err)
		code = 1
	}
	os.Exit(code)
}

// quiet keeps the logs of API servers out of a test's output, but for -v.
func quiet() error {
	if testing.Verbose() {
		return nil
	}
	flags := flag.NewFlagSet("klog", flag.ContinueOnError)
	klog.InitFlags(flags)
	klog.SetOutput(io.Discard)
	return errors.Join(flags.Set("logtostderr", "false"), flags.Set("stderrthreshold", "FATAL"))
}

func theBed(t *testing.T) *bed {
	t.Helper()
	b, err := shared()
	if err != nil {
		t.Fatal(err)
	}
	return b
}
