// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package hosttokens

import (
	"os"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/berth-dev/berth/internal/testhost"
)

// hostConfig reaches the host of all tests.
var hostConfig *rest.Config //nolint:gochecknoglobals // set once, before the tests

func TestMain(m *testing.M) {
	os.Exit(testhost.Main(m, func() (*testhost.Host, error) {
		host, err := testhost.Start()
		if err == nil {
			hostConfig = host.Config()
		}
		return host, err
	}))
}
