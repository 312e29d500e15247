// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"os"
	"sync"
	"testing"

	"github.com/berth-dev/berth/internal/testhost"
)

var shared = sync.OnceValues(testhost.Start)

func TestMain(m *testing.M) { os.Exit(testhost.Main(m, shared)) }
