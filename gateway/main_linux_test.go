// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway_test

import (
	"os"
	"testing"
)

// TestMain runs the tests, or the server that they attack (attacked_linux_test.go) if this process is started as that.
func TestMain(m *testing.M) {
	if dir := os.Getenv(attackedEnv); dir != "" {
		os.Exit(serveAttacked(dir))
	}
	os.Exit(m.Run())
}

// attackedEnv names the directory of a process that is attacked.
const attackedEnv = "BERTH_TEST_ATTACKED"
