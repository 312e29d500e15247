// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package dedicated

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"syscall"
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

// Hanging is where a process answers one request on a connection. After that, nothing can be written to it.
func Hanging() Endpoint {
	dial := func(context.Context) (net.Conn, error) {
		ours, theirs := net.Pipe()
		go func() {
			if r, err := http.ReadRequest(bufio.NewReader(theirs)); err == nil {
				_, _ = io.Copy(io.Discard, r.Body)
				_, _ = io.WriteString(theirs, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
			}
		}()
		return &unwritable{Conn: ours}, nil
	}
	return Endpoint{"nowhere", dial, dial}
}

// Leaving is where a process answers one request on a connection, and closes it when it has the next one.
func Leaving() Endpoint {
	dial := func(context.Context) (net.Conn, error) {
		ours, theirs := net.Pipe()
		go func() {
			defer theirs.Close()
			from := bufio.NewReader(theirs)
			if r, err := http.ReadRequest(from); err == nil {
				_, _ = io.Copy(io.Discard, r.Body)
				_, _ = io.WriteString(theirs, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
				_, _ = http.ReadRequest(from)
			}
		}()
		return ours, nil
	}
	return Endpoint{"nowhere", dial, dial}
}

// unwritable is a connection that can be written to until it was read.
type unwritable struct {
	net.Conn
	read atomic.Bool
}

func (c *unwritable) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.read.Store(true)
	return n, err
}

func (c *unwritable) Write(p []byte) (int, error) {
	if c.read.Load() {
		return 0, syscall.EPIPE
	}
	return c.Conn.Write(p)
}

// Bounds of the transfer of a store.
const (
	PrepareTimeout = prepareTimeout
	PaceInterval   = paceInterval
	PaceBytes      = paceBytes
)
