// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package testrace tells tests whether they run under the race detector.
package testrace

import "testing"

// SkipAlone skips a test in which one goroutine computes for a long time. Under the race detector that takes many times as long, and there
// is no race to find.
func SkipAlone(t testing.TB) {
	t.Helper()
	if Enabled {
		t.Skip("one goroutine computes here for a long time, in which the race detector finds nothing: make test runs this test")
	}
}
