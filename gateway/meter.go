// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"

	"k8s.io/apiserver/pkg/endpoints/responsewriter"
)

// Meter counts the requests to spaces that exist.
type Meter interface {
	// Begin is called when a request has arrived. end is called once, when the handler has ended, with the status code of
	// the response: 0 if there was none or it was cut off. moved is called with the bytes of bodies, and of connections
	// that handlers have taken over, whenever some were received or sent. It may be called concurrently, and after end.
	Begin(space string, r *http.Request) (moved func(received, sent int64), end func(code int))
	// Rejected is called when a request was rejected because the space has reached a limit.
	Rejected(space, limit string)
}

// metered serves a request, and counts it with the meter.
func metered(meter Meter, space string, next http.Handler, w http.ResponseWriter, r *http.Request) {
	moved, end := meter.Begin(space, r)
	watched := &statusWriter{ResponseWriter: w, moved: moved}
	aborted := true // by a panic, which is how handlers cut off a response
	defer func() {
		if aborted {
			watched.code = 0
		}
		end(watched.code)
	}()
	if r.Body != nil && r.Body != http.NoBody {
		counted := *r
		counted.Body = &countedBody{r.Body, moved}
		r = &counted
	}
	next.ServeHTTP(responsewriter.WrapForHTTP1Or2(watched), r)
	if watched.code == 0 {
		watched.code = http.StatusOK // the default of net/http
	}
	aborted = false
}

// Meters are several meters, each of which counts all requests.
type Meters []Meter

// Begin implements [Meter].
func (m Meters) Begin(space string, r *http.Request) (moved func(received, sent int64), end func(code int)) {
	allMoved, ends := make([]func(int64, int64), len(m)), make([]func(int), len(m))
	for i, meter := range m {
		allMoved[i], ends[i] = meter.Begin(space, r)
	}
	moved = func(received, sent int64) {
		for _, one := range allMoved {
			one(received, sent)
		}
	}
	return moved, func(code int) {
		for _, one := range ends {
			one(code)
		}
	}
}

// Rejected implements [Meter].
func (m Meters) Rejected(space, limit string) {
	for _, meter := range m {
		meter.Rejected(space, limit)
	}
}

// statusWriter records the status code, and counts what is sent.
type statusWriter struct {
	http.ResponseWriter
	moved func(received, sent int64)
	code  int
}

var _ responsewriter.UserProvidedDecorator = (*statusWriter)(nil)

// Unwrap implements [responsewriter.UserProvidedDecorator], and is used by [http.ResponseController].
func (s *statusWriter) Unwrap() http.ResponseWriter { return s.ResponseWriter }

func (s *statusWriter) WriteHeader(code int) {
	if s.code == 0 && code >= http.StatusOK {
		s.code = code
	}
	s.ResponseWriter.WriteHeader(code)
}

func (s *statusWriter) Write(b []byte) (int, error) {
	if s.code == 0 {
		s.code = http.StatusOK
	}
	n, err := s.ResponseWriter.Write(b)
	if n > 0 {
		s.moved(0, int64(n))
	}
	return n, err
}

// Hijack passes the connection to the handler, which then writes the response itself.
func (s *statusWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffered, err := http.NewResponseController(s.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	if s.code == 0 {
		s.code = http.StatusSwitchingProtocols
	}
	s.moved(int64(buffered.Reader.Buffered()), 0)
	counted := &countedConn{conn, s.moved}
	return counted, rebuffered(buffered, counted), nil
}

// rebuffered returns buffers of a connection that wraps another one. What was read ahead from that is in the new buffer.
func rebuffered(before *bufio.ReadWriter, conn net.Conn) *bufio.ReadWriter {
	early := make([]byte, before.Reader.Buffered())
	_, _ = before.Read(early) // only what is already there
	reader := bufio.NewReaderSize(io.MultiReader(bytes.NewReader(early), conn), before.Reader.Size())
	_, _ = reader.Peek(len(early)) // so that handlers find it in the buffer, as before
	return bufio.NewReadWriter(reader, bufio.NewWriterSize(conn, before.Writer.Size()))
}

// countedBody counts what is read of the body of a request.
type countedBody struct {
	io.ReadCloser
	moved func(received, sent int64)
}

// Read implements [io.Reader].
func (b *countedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if n > 0 {
		b.moved(int64(n), 0)
	}
	return n, err
}

// countedConn counts what is received and sent by a connection that a handler has taken over.
type countedConn struct {
	net.Conn
	moved func(received, sent int64)
}

// Read implements [net.Conn].
func (c *countedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 {
		c.moved(int64(n), 0)
	}
	return n, err
}

// Write implements [net.Conn].
func (c *countedConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	if n > 0 {
		c.moved(0, int64(n))
	}
	return n, err
}

// CloseWrite closes the sending side, if the connection supports that.
func (c *countedConn) CloseWrite() error { return closeWrite(c.Conn) }

func closeWrite(conn net.Conn) error {
	if half, ok := conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}
