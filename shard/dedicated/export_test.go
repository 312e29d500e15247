// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package dedicated

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
)

// Silent is where a process takes requests and never answers.
func Silent() Endpoint {
	dial := func(context.Context) (net.Conn, error) {
		ours, theirs := net.Pipe()
		go func() { _, _ = io.Copy(io.Discard, theirs) }() // until ours is closed
		return ours, nil
	}
	return Endpoint{"nowhere", dial, dial}
}

// Answering is where a process takes one request on each connection, and answers with what answer writes.
func Answering(answer func(w io.Writer)) Endpoint {
	dial := func(context.Context) (net.Conn, error) {
		ours, theirs := net.Pipe()
		go func() {
			defer theirs.Close()
			if r, err := http.ReadRequest(bufio.NewReader(theirs)); err == nil {
				_, _ = io.Copy(io.Discard, r.Body)
				answer(theirs)
			}
		}()
		return ours, nil
	}
	return Endpoint{"nowhere", dial, dial}
}

// Bounds of the transfer of a store.
const (
	PrepareTimeout = prepareTimeout
	PaceInterval   = paceInterval
	PaceBytes      = paceBytes
)
