// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package vcluster

import (
	"net"
	"sync"
)

// idleListener is a listener without connections. Upstream's server needs a listener, and stops cleanly only with one.
// Requests use its handler directly.
type idleListener struct {
	closed chan struct{}
	once   sync.Once
}

func newIdleListener() *idleListener {
	return &idleListener{closed: make(chan struct{})}
}

// Accept waits for Close.
func (l *idleListener) Accept() (net.Conn, error) {
	<-l.closed
	return nil, net.ErrClosed
}

func (l *idleListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

func (l *idleListener) Addr() net.Addr { return idleAddr{} }

// idleAddr has no address of this machine, because upstream publishes values that it derives from the address (N1).
type idleAddr struct{}

func (idleAddr) Network() string { return "none" }
func (idleAddr) String() string  { return "space.invalid:443" }
