// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package streams_test

import (
	"os"
	"sync"
	"testing"

	"github.com/berth-dev/berth/internal/testhost"
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

func TestMain(m *testing.M) { os.Exit(testhost.Main(m, shared)) }

func theBed(t *testing.T) *bed {
	t.Helper()
	b, err := shared()
	if err != nil {
		t.Fatal(err)
	}
	return b
}
