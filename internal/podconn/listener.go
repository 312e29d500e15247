// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package podconn

import (
	"crypto/tls"
	"net"
	"net/netip"
	"sync"
)

// Config says whose connections are taken, and how many at once.
type Config struct {
	// SpaceAt is the space whose pod has an address; ok is false if none has.
	SpaceAt         func(netip.Addr) (space string, ok bool)
	PerSpace, Total int
}

// Listen takes from l the connections of pods. Others, and those over the
// bounds, are closed before anything is read from them.
func Listen(l net.Listener, c Config) net.Listener {
	return &listener{Listener: l, config: c, spaces: map[string]int{}}
}

type listener struct {
	net.Listener
	config Config

	mu     sync.Mutex
	spaces map[string]int // connections of each
	total  int
}

// Accept implements [net.Listener].
func (l *listener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if taken := l.take(c); taken != nil {
			return taken, nil
		}
		_ = c.Close()
	}
}

func (l *listener) take(c net.Conn) net.Conn {
	addr, ok := Address(c.RemoteAddr())
	if !ok {
		return nil
	}
	space, ok := l.config.SpaceAt(addr)
	if !ok {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.total >= l.config.Total || l.spaces[space] >= l.config.PerSpace {
		return nil
	}
	l.total++
	l.spaces[space]++
	return &conn{Conn: c, space: space, release: sync.OnceFunc(func() { l.release(space) })}
}

func (l *listener) release(space string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.total--
	if l.spaces[space]--; l.spaces[space] == 0 {
		delete(l.spaces, space)
	}
}

type conn struct {
	net.Conn
	space   string
	release func()
}

// Close implements [net.Conn].
func (c *conn) Close() error {
	defer c.release()
	return c.Conn.Close()
}

// SpaceOf is the space whose pod made a connection that was taken here, also
// below TLS.
func SpaceOf(c net.Conn) (space string, ok bool) {
	if secure, is := c.(*tls.Conn); is {
		c = secure.NetConn()
	}
	ours, ok := c.(*conn)
	if !ok {
		return "", false
	}
	return ours.space, true
}

// Address is the IP of a network address; ok is false if it has none.
func Address(a net.Addr) (netip.Addr, bool) {
	switch a := a.(type) {
	case *net.UDPAddr:
		return a.AddrPort().Addr().Unmap(), a.IP != nil
	case *net.TCPAddr:
		return a.AddrPort().Addr().Unmap(), a.IP != nil
	default:
		return netip.Addr{}, false
	}
}
