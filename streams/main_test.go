// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package streams_test

import (
	"os"
	"sync"
	"testing"

	"github.com/berth-dev/berth/internal/testhost"
)

// shared is the one environment of all tests here; each test has a space of its own on it.
var shared = sync.OnceValues(func() (*testEnv, error) {
	dir, err := os.MkdirTemp("", "berth-streams-test-")
	if err != nil {
		return nil, err
	}
	env, err := newEnv(dir)
	if env != nil {
		env.closes = append([]func(){func() { _ = os.RemoveAll(dir) }}, env.closes...)
	}
	return env, err
})

func TestMain(m *testing.M) { os.Exit(testhost.Main(m, shared)) }

func theEnv(t *testing.T) *testEnv {
	t.Helper()
	env, err := shared()
	if err != nil {
		t.Fatal(err)
	}
	return env
}
