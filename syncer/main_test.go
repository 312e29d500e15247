// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package syncer_test

import (
	"flag"
	"fmt"
	"os"
	"sync"
	"testing"

	"github.com/berth-dev/berth/internal/testhost"
)

// shared is the one host cluster of all tests here; each test has a space of
// its own on it.
var shared = sync.OnceValues(testhost.Start)

func TestMain(m *testing.M) {
	// These tests wait far longer than they compute.
	if err := flag.Set("test.parallel", "12"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(testhost.Main(m, shared))
}

func theHost(t *testing.T) *testhost.Host {
	t.Helper()
	host, err := shared()
	if err != nil {
		t.Fatal(err)
	}
	return host
}
