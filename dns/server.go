// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package dns

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"time"

	miekg "github.com/miekg/dns"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/berth-dev/berth/internal/podconn"
	"github.com/berth-dev/berth/internal/safego"
)

// Server answers queries until it is stopped.
//
// The loops that read are its own, and not those of the library that knows the
// messages: they know the space before they read what it says, take no more of
// it than its share, and outlive a panic.
type Server struct {
	config    Config
	zone      zone
	forwarder *forwarder
	tenants   *tenants
	refusals  flowcontrol.PassiveRateLimiter
	waiters   podconn.Waiters
	total     places // queries by UDP

	udp  net.PacketConn
	tcp  net.Listener
	life context.Context
	end  context.CancelFunc
	work sync.WaitGroup

	mu    sync.Mutex
	conns map[net.Conn]struct{}
}

// Serve begins to answer on both, which it owns from then on. The two should
// have one address: clients ask by TCP what did not fit into an answer by UDP.
func Serve(udp net.PacketConn, tcp net.Listener, c Config) (*Server, error) {
	c, err := c.complete()
	if err != nil {
		return nil, err
	}
	s := newServer(c)
	if socket, ok := udp.(interface{ SetReadBuffer(bytes int) error }); ok {
		_ = socket.SetReadBuffer(1 << 20) // less, where the system allows no more
	}
	s.udp = udp
	s.tcp = podconn.Listen(tcp, podconn.Config{SpaceAt: c.Source.SpaceAt, PerSpace: c.Limits.Connections, Total: maxTotal})
	safego.Go(&s.work, "serve DNS by UDP", s.serveUDP, nil)
	safego.Go(&s.work, "serve DNS by TCP", s.serveTCP, nil)
	return s, nil
}

func newServer(c Config) *Server {
	s := &Server{
		config:    c,
		zone:      newZone(c.Domain, c.Source),
		forwarder: &forwarder{upstreams: c.Upstreams, filter: newFilter(c), asking: make(chan struct{}, maxAsking), clock: c.Clock},
		tenants:   newTenants(c.Limits, c.Clock),
		refusals:  flowcontrol.NewTokenBucketPassiveRateLimiterWithClock(maxRefusals, maxRefusals, c.Clock),
		total:     places{limit: maxTotal},
		conns:     map[net.Conn]struct{}{},
	}
	s.life, s.end = context.WithCancel(context.Background())
	return s
}

// Stop ends all that is under way and waits for it.
func (s *Server) Stop() {
	s.end()
	_ = s.udp.Close()
	_ = s.tcp.Close()
	s.mu.Lock()
	for conn := range s.conns {
		_ = conn.Close()
	}
	s.mu.Unlock()
	s.work.Wait()
}

func (s *Server) serveUDP() {
	buffer := make([]byte, maxQuery)
	for {
		n, from, err := s.udp.ReadFrom(buffer)
		if s.life.Err() != nil {
			return
		}
		if err != nil {
			// An earlier answer could not be delivered, most often.
			if errors.Is(err, net.ErrClosed) {
				s.config.Logger.Error(err, "Stopped serving DNS over UDP")
				return
			}
			s.pause()
			continue
		}
		if addr, ok := podconn.Address(from); ok {
			safego.Run("receive a query", func() { s.receive(addr, from, buffer[:n]) }, nil)
		}
	}
}

// receive takes a query by UDP, if it is one of a pod whose space has not too
// many already. What is not taken is forgotten: clients ask again.
func (s *Server) receive(addr netip.Addr, from net.Addr, packet []byte) {
	if _, ok := check(packet); !ok {
		return
	}
	packet = append([]byte(nil), packet...)
	space, ok := s.config.Source.SpaceAt(addr)
	if ok {
		s.take(space, from, packet)
		return
	}
	safego.Go(&s.work, "find out whose pod asks", func() {
		if space, ok := s.waiters.Wait(s.life, addr, s.config.Source.SpaceAt); ok {
			s.take(space, from, packet)
		} else if s.life.Err() == nil && s.refusals.TryAccept() {
			s.send(from, status(packet, miekg.RcodeRefused))
		}
	}, nil)
}

// take answers a query of a space, unless the space has too many.
func (s *Server) take(space string, from net.Addr, packet []byte) {
	t := s.tenants.of(space)
	if !t.queries.TryAccept() || !t.inFlight.take() {
		return
	}
	if !s.total.take() {
		t.inFlight.give()
		return
	}
	safego.Go(&s.work, "answer a query", func() {
		defer t.inFlight.give()
		defer s.total.give()
		ctx, cancel := context.WithTimeout(s.life, queryTimeout)
		defer cancel()
		s.send(from, s.respond(ctx, space, packet, false))
	}, nil)
}

func (s *Server) send(to net.Addr, reply []byte) {
	if reply != nil {
		_, _ = s.udp.WriteTo(reply, to) // who does not get it asks again
	}
}

func (s *Server) serveTCP() {
	for {
		conn, err := s.tcp.Accept()
		if s.life.Err() != nil {
			if err == nil {
				_ = conn.Close()
			}
			return
		}
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				s.config.Logger.Error(err, "Stopped serving DNS over TCP")
				return
			}
			s.pause()
			continue
		}
		s.mu.Lock()
		s.conns[conn] = struct{}{}
		s.mu.Unlock()
		safego.Go(&s.work, "answer queries", func() {
			defer func() {
				_ = conn.Close()
				s.mu.Lock()
				defer s.mu.Unlock()
				delete(s.conns, conn)
			}()
			s.converse(conn)
		}, nil)
	}
}

// pause keeps an error that stays, such as too many open files, from taking a
// whole processor.
func (s *Server) pause() {
	select {
	case <-time.After(100 * time.Millisecond):
	case <-s.life.Done():
	}
}

// converse answers one query after the other on a connection. Whoever writes or
// reads slowly loses it.
func (s *Server) converse(conn net.Conn) {
	if s.life.Err() != nil {
		return
	}
	for range maxPerConn {
		packet, err := readQuery(conn)
		if err != nil {
			return
		}
		// The address may have gone to another pod meanwhile.
		space, ok := podconn.SpaceOf(conn)
		addr, known := podconn.Address(conn.RemoteAddr())
		if now, is := s.config.Source.SpaceAt(addr); !ok || !known || !is || now != space {
			return
		}
		t := s.tenants.of(space)
		var reply []byte
		if t.queries.TryAccept() {
			ctx, cancel := context.WithTimeout(s.life, queryTimeout)
			reply = s.respond(ctx, space, packet, true)
			cancel()
		} else {
			reply = status(packet, miekg.RcodeRefused)
		}
		if reply == nil || writeReply(conn, reply) != nil {
			return
		}
	}
}

func readQuery(conn net.Conn) ([]byte, error) {
	if err := conn.SetReadDeadline(time.Now().Add(readTimeout)); err != nil {
		return nil, err
	}
	var size [2]byte
	if _, err := io.ReadFull(conn, size[:]); err != nil {
		return nil, err
	}
	length := binary.BigEndian.Uint16(size[:])
	if length > maxQuery {
		return nil, fmt.Errorf("a query of %d bytes", length)
	}
	packet := make([]byte, length)
	_, err := io.ReadFull(conn, packet)
	return packet, err
}

func writeReply(conn net.Conn, reply []byte) error {
	if err := conn.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
		return err
	}
	framed := make([]byte, 2, 2+len(reply))
	binary.BigEndian.PutUint16(framed, uint16(len(reply))) // pack bounds it
	_, err := conn.Write(append(framed, reply...))
	return err
}
