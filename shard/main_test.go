// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package shard_test

import (
	"os"
	"sync"
	"testing"

	"github.com/berth-dev/berth/internal/testhost"
)

// shared is the one host cluster of all tests here; each test has a space of
// its own on it.
var shared = sync.OnceValues(testhost.Start)

func TestMain(m *testing.M) { os.Exit(testhost.Main(m, shared)) }

func theHost(t *testing.T) *testhost.Host {
	t.Helper()
	host, err := shared()
	if err != nil {
		t.Fatal(err)
	}
	return host
}
