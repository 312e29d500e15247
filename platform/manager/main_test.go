// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"os"
	"sync"
	"testing"

	"github.com/berth-dev/berth/internal/testhost"
)

//nolint:gochecknoglobals // One host for all tests of the package: TestMain has no other way to pass it on.
var shared = sync.OnceValues(testhost.Start)

func TestMain(m *testing.M) { os.Exit(testhost.Main(m, shared)) }
