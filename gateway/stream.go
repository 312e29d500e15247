// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"time"
)

// streamLease is how long at most a part of a stream counts as one that is worked on. That takes a small part of it; after
// that the part waits for its receiver.
const streamLease = time.Millisecond

// stream has what is sent and received by a connection that its handler has taken over (exec, attach, port forwarding) take
// turns while the process is busy, as the parts of long answers do. Many streams of one space could otherwise use all
// processors. In a process that is not busy a turn would cost a tenth of what the part itself takes.
type stream struct {
	net.Conn

	ctx      context.Context // of the connection: it outlives its request
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
	early := make([]byte, buffered.Reader.Buffered())
	_, _ = buffered.Read(early) // as much as that is there
	reader := bufio.NewReaderSize(io.MultiReader(bytes.NewReader(early), s), buffered.Reader.Size())
	_, _ = reader.Peek(len(early)) // so that handlers find it buffered, as before
	return s, bufio.NewReadWriter(reader, bufio.NewWriterSize(s, buffered.Writer.Size())), nil
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

// CloseWrite ends what is sent, if the connection can.
func (s *stream) CloseWrite() error {
	if half, ok := s.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}

// Close implements [net.Conn]. Parts that wait for their turn fail.
func (s *stream) Close() error {
	s.cancel()
	s.received.end()
	return s.Conn.Close()
}
