// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package clientaddr

import (
	"net"
	"net/netip"
	"sync"
)

// networkBits is the prefix of IPv6 that one client has at least, and chooses addresses in as it likes.
const networkBits = 64

// Of is the client's part of a network address: an IPv4 address, or the /64 of an IPv6 address. All loopback addresses
// are one client, this machine, whose processes choose among them as they like. So all clients behind a proxy on this
// machine are one client, as they are behind any other proxy that hides their addresses: to leave loopback out of the
// bounds would let them use up what is there for everybody. Of is the zero prefix for what has no IP, such as a unix socket.
func Of(a net.Addr) netip.Prefix {
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.Prefix{}
	}
	return group(tcp.AddrPort().Addr())
}

// OfRemote is [Of] for the RemoteAddr of a request.
func OfRemote(remote string) netip.Prefix {
	addr, err := netip.ParseAddrPort(remote)
	if err != nil {
		return netip.Prefix{}
	}
	return group(addr.Addr())
}

func group(addr netip.Addr) netip.Prefix {
	addr = addr.Unmap().WithZone("")
	bits := addr.BitLen()
	switch {
	case addr.IsLoopback():
		addr, bits = netip.AddrFrom4([4]byte{127}), 8
	case addr.Is6():
		bits = networkBits
	}
	prefix, _ := addr.Prefix(bits) // fails only for more bits than there are
	return prefix
}

// Counter bounds what clients hold at once. It is safe for concurrent use.
type Counter struct {
	total, each int

	mu   sync.Mutex
	held int
	by   map[netip.Prefix]int
}

// NewCounter returns a counter for total, of which each client may hold some.
func NewCounter(total, each int) *Counter {
	return &Counter{total: total, each: each, by: map[netip.Prefix]int{}}
}

// Take reports whether the client may hold one more. If so, Give must follow.
func (c *Counter) Take(client netip.Prefix) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.held >= c.total || c.by[client] >= c.each {
		return false
	}
	c.held++
	c.by[client]++
	return true
}

// Give takes one back.
func (c *Counter) Give(client netip.Prefix) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.held--
	if c.by[client]--; c.by[client] == 0 {
		delete(c.by, client)
	}
}

// Held is how many all clients hold.
func (c *Counter) Held() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.held
}
