// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package control

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
)

// maxAddress is the maximum length of the path of a unix socket that every system supports.
const maxAddress = 103

// DialSocket connects to a unix socket. Its path may have any length.
func DialSocket(ctx context.Context, path string) (net.Conn, error) {
	address, release, err := shorten(path)
	if err != nil {
		return nil, err
	}
	defer release()
	return (&net.Dialer{}).DialContext(ctx, "unix", address)
}

// shorten returns an address of the socket at path that is short enough for the kernel. The address is valid until
// release is called.
func shorten(path string) (address string, release func(), err error) {
	if len(path) <= maxAddress {
		return path, func() {}, nil
	}
	if runtime.GOOS != "linux" {
		return "", nil, fmt.Errorf("its path has %d bytes, and may have %d; choose a data directory with a shorter path", len(path), maxAddress)
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return "", nil, err
	}
	return fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), filepath.Base(path)), func() { _ = dir.Close() }, nil
}
