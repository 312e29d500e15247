// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package testservers

import (
	"math/rand/v2"
	"net"
	"strconv"
	"sync/atomic"
)

// The ports of FreePort are below those that Linux gives to whoever wants any, so that only another test could take one before it is used.
const firstPort, ports = 20_000, 10_000

var lastPort atomic.Int64 //nolint:gochecknoglobals // of the process

// FreePort returns a port of the loopback interface that nothing listens at, and another one each time.
func FreePort() (int, error) {
	lastPort.CompareAndSwap(0, rand.Int64N(ports)) // other processes look for one at the same time
	for tries := 0; ; tries++ {
		port := firstPort + int(lastPort.Add(1)%ports)
		listener, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err == nil {
			return port, listener.Close()
		}
		if tries == ports {
			return 0, err
		}
	}
}
