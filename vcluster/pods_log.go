// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package vcluster

import "io"

// lateEnd tells of the end of a stream by a read of its own. Upstream's WebSocket copy drops what it reads together with
// the end, as clients of HTTP/2 and of bodies of known length do.
type lateEnd struct{ io.ReadCloser }

func (l lateEnd) Read(p []byte) (int, error) {
	n, err := l.ReadCloser.Read(p)
	if n > 0 && err == io.EOF {
		err = nil
	}
	return n, err
}
