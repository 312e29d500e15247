// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package podconn

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"sync"

	"github.com/berth-dev/berth/internal/safego"
)

// Config says whose connections are taken, and how many at once.
type Config struct {
	// SpaceAt is the space whose pod has an address; ok is false if none has.
	SpaceAt         func(netip.Addr) (space string, ok bool)
	PerSpace, Total int
}

// Listen takes from l, which it owns from then on, the connections of pods.
// Others, and those over the bounds, are closed before anything is read from
// them. Who is not known yet is given a moment.
func Listen(l net.Listener, c Config) net.Listener {
	own := &listener{Listener: l, config: c, spaces: map[string]int{}, taken: make(chan accepted)}
	own.life, own.end = context.WithCancel(context.Background())
	safego.Go(&own.work, "accept connections from pods", own.listen, func(error) { own.end() })
	return own
}

type listener struct {
	net.Listener
	config  Config
	waiters Waiters
	taken   chan accepted
	life    context.Context
	end     context.CancelFunc
	work    sync.WaitGroup

	mu     sync.Mutex
	spaces map[string]int // connections of each
	total  int
}

type accepted struct {
	conn net.Conn
	err  error
}

// Accept implements [net.Listener].
func (l *listener) Accept() (net.Conn, error) {
	select {
	case a := <-l.taken:
		return a.conn, a.err
	case <-l.life.Done():
		return nil, net.ErrClosed
	}
}

// Close implements [net.Listener]. It closes the connections that nobody has
// accepted.
func (l *listener) Close() error {
	l.end()
	err := l.Listener.Close()
	l.work.Wait()
	return err
}

func (l *listener) listen() {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			l.hand(nil, err)
			if l.life.Err() != nil || errors.Is(err, net.ErrClosed) {
				return
			}
			continue
		}
		addr, ok := Address(c.RemoteAddr())
		if !ok {
			_ = c.Close()
			continue
		}
		if space, ok := l.config.SpaceAt(addr); ok {
			l.hand(l.take(c, space), nil)
			continue
		}
		safego.Go(&l.work, "find out whose pod connects", func() {
			space, ok := l.waiters.Wait(l.life, addr, l.config.SpaceAt)
			if !ok {
				_ = c.Close()
				return
			}
			l.hand(l.take(c, space), nil)
		}, func(error) { _ = c.Close() })
	}
}

// hand gives what was accepted to whoever accepts next.
func (l *listener) hand(c net.Conn, err error) {
	if c == nil && err == nil {
		return
	}
	select {
	case l.taken <- accepted{c, err}:
	case <-l.life.Done():
		if c != nil {
			_ = c.Close()
		}
	}
}

// take makes a connection the space's, or closes it if the space has enough.
func (l *listener) take(c net.Conn, space string) net.Conn {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.total >= l.config.Total || l.spaces[space] >= l.config.PerSpace {
		_ = c.Close()
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
// below TLS and whatever else says what is below it.
func SpaceOf(c net.Conn) (space string, ok bool) {
	for {
		switch at := c.(type) {
		case *conn:
			return at.space, true
		case interface{ NetConn() net.Conn }:
			c = at.NetConn()
		default:
			return "", false
		}
	}
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
