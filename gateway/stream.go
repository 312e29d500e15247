// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"bufio"
	"context"
	"net"
	"net/http"
	"time"
)

// streamLease is the maximum time for which a part of a stream counts as being processed. Processing takes a fraction
// of it; after that, the part waits for its receiver.
const streamLease = time.Millisecond

// stream makes reads and writes of a hijacked connection (exec, attach, port forwarding) take turns while the process
// is busy, like the parts of long responses. Otherwise, many streams of one space could use all processors. While the
// process is not busy, there are no turns, which would cost a tenth of the processing itself.
type stream struct {
	net.Conn

	ctx      context.Context // of the connection, which outlives its request
	cancel   context.CancelFunc
	busy     func() bool
	turn     func(ctx context.Context) (release func(), err error)
	received received
}

func newStream(ctx context.Context, conn net.Conn, busy func() bool, turn func(context.Context) (func(), error)) *stream {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	s := &stream{Conn: conn, ctx: ctx, cancel: cancel, busy: busy, turn: turn}
	s.received = received{Reader: conn, begin: func() (func(), error) { return beginReceived(ctx, busy, turn) }}
	return s
}

// Hijack implements [http.Hijacker].
func (w *partsWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffered, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	w.end()
	s := newStream(w.ctx, conn, w.busy, w.turn)
	return s, rebuffered(buffered, s), nil
}

// Read implements [net.Conn].
func (s *stream) Read(p []byte) (int, error) { return s.received.Read(p) }

// Write implements [net.Conn].
func (s *stream) Write(p []byte) (int, error) {
	s.received.end()
	if !s.busy() {
		return s.Conn.Write(p)
	}
	end, err := beginPart(s.ctx, s.turn, streamLease)
	if err != nil {
		return 0, net.ErrClosed
	}
	defer end()
	return s.Conn.Write(p)
}

// CloseWrite closes the sending side, if the connection supports that.
func (s *stream) CloseWrite() error { return closeWrite(s.Conn) }

// Close implements [net.Conn]. Parts that wait for their turn fail.
func (s *stream) Close() error {
	s.cancel()
	s.received.end()
	return s.Conn.Close()
}
