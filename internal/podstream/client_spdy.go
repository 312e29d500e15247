// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package podstream

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync"

	"github.com/moby/spdystream/spdy"
	corev1 "k8s.io/api/core/v1"
)

const (
	// maxOpen bounds the streams that a host has at once of one port forwarding, of
	// which each connection takes two.
	maxOpen = 512
	// maxRequest bounds what a client calls a connection, in bytes: it is a number.
	maxRequest = 32
	// ownPing is of a ping that only this server sends.
	ownPing = 1<<31 - 2
)

// spdyClient is a client that speaks SPDY, be it in a tunnel.
type spdyClient struct {
	call    *Call
	conn    net.Conn
	from    *bufio.Reader
	control *spdy.Framer // reads frames other than data
	last    spdy.StreamId
	open    []string // kinds of streams that the client has opened, if each is there once

	mu      sync.Mutex // of what is written
	headers headers
}

func newSPDYClient(call *Call, conn net.Conn, from *bufio.Reader) (*spdyClient, error) {
	control, err := spdy.NewFramerWithOptions(io.Discard, from,
		spdy.WithMaxControlFramePayloadSize(maxControl), spdy.WithMaxHeaderFieldSize(256), spdy.WithMaxHeaderCount(16))
	if err != nil {
		return nil, err
	}
	return &spdyClient{call: call, conn: conn, from: from, control: control}, nil
}

func (c *spdyClient) begin(*host) error { return nil }

// read carries what the client says until it leaves.
func (c *spdyClient) read(h *host) error {
	for {
		b, err := c.from.Peek(headSize)
		if err != nil {
			return err
		}
		head, err := parseHead(b)
		if err != nil {
			return err
		}
		if head.control {
			err = c.readControl(h)
		} else if head.stream > c.last {
			err = errFrame // of a stream that was not opened
		} else if _, err = c.from.Discard(headSize); err == nil {
			err = h.data(head.stream, head.flags, c.from, head.length)
		}
		if err != nil {
			return err
		}
	}
}

func (c *spdyClient) readControl(h *host) error {
	frame, err := c.control.ReadFrame()
	if err != nil {
		return err
	}
	switch f := frame.(type) {
	case *spdy.SynStreamFrame:
		return c.openStream(h, f)
	case *spdy.RstStreamFrame:
		h.reset(f.StreamId)
	case *spdy.PingFrame:
		if f.Id != ownPing {
			h.ping(f.Id)
		}
	case *spdy.GoAwayFrame:
		return io.EOF
	case *spdy.SynReplyFrame, *spdy.HeadersFrame:
		return errFrame // clients have none to send
	}
	return nil // windows and settings are those of a connection that ends here
}

// openStream opens a stream on the host, or refuses to.
func (c *spdyClient) openStream(h *host, f *spdy.SynStreamFrame) error {
	if f.StreamId%2 == 0 || f.StreamId <= c.last {
		return errFrame
	}
	c.last = f.StreamId
	s := &stream{id: f.StreamId, kind: f.Headers.Get(corev1.StreamType), clientDone: f.CFHeader.Flags&spdy.ControlFlagFin != 0}
	request := ""
	if c.call.Forward {
		port, err := strconv.ParseUint(f.Headers.Get(corev1.PortHeader), 10, 16)
		request = f.Headers.Get(corev1.PortForwardRequestIDHeader)
		if err != nil || port == 0 || len(request) > maxRequest || h.size() >= maxOpen {
			return c.refuse(s)
		}
		s.port = uint16(port)
	} else if slices.Contains(c.open, s.kind) {
		return c.refuse(s)
	}
	if !slices.Contains(c.call.kinds(), s.kind) {
		return c.refuse(s)
	}
	if !c.call.Forward {
		c.open = append(c.open, s.kind)
	}
	h.open(s, request)
	return nil
}

func (c *spdyClient) refuse(s *stream) error { return c.write(resetFrame(s.id, spdy.RefusedStream)) }

func (c *spdyClient) write(b []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, err := c.conn.Write(b)
	return err
}

func (c *spdyClient) opened(s *stream) error {
	return c.write(controlFrame(spdy.TypeSynReply, 0, append(word(uint32(s.id)), c.headers.encode()...)))
}

func (c *spdyClient) data(s *stream, p []byte, ends bool) error {
	if len(p) == headSize && !ends {
		return nil
	}
	putDataHead(p, s.id, ends, len(p)-headSize)
	return c.write(p)
}

func (c *spdyClient) said(s *stream, text []byte) error {
	for part := range slices.Chunk(c.call.failure(s, text), maxPart) {
		if err := c.data(s, append(make([]byte, headSize), part...), false); err != nil {
			return err
		}
	}
	return nil
}

func (c *spdyClient) ended(s *stream) error { return c.write(resetFrame(s.id, spdy.Cancel)) }

func (c *spdyClient) pinged(id uint32) error {
	return c.write(controlFrame(spdy.TypePing, 0, word(id)))
}

func (c *spdyClient) ping() error { return c.pinged(ownPing) }

// end says that nothing follows.
func (c *spdyClient) end() {
	_ = c.write(controlFrame(spdy.TypeGoAway, 0, make([]byte, 8)))
	if half, ok := c.conn.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
	}
}

// answerSPDY takes the connection over, and answers in the protocol agreed on.
func answerSPDY(w http.ResponseWriter, protocol string) (net.Conn, *bufio.Reader, error) {
	conn, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return nil, nil, err
	}
	header := w.Header().Clone()
	header.Set("Connection", "Upgrade")
	header.Set("Upgrade", spdyUpgrade)
	header.Set(spdyProtocols, protocol)
	answer := &http.Response{StatusCode: http.StatusSwitchingProtocols, ProtoMajor: 1, ProtoMinor: 1, Header: header}
	if err := answer.Write(conn); err != nil {
		_ = conn.Close()
		return nil, nil, err
	}
	return conn, buffered.Reader, nil
}
