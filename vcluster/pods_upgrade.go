// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package vcluster

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/http"
)

// leaving is a response whose connection, once it is taken over, tells when the
// client has gone, and closes as a whole: a client must not hold a stream whose
// pod has ended by not closing its half, nor a pod one whose client has left.
type leaving struct {
	http.ResponseWriter
	life context.Context // of the stream: the connection closes with it
	gone context.CancelFunc
}

// Hijack implements [http.Hijacker].
func (l leaving) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffered, err := http.NewResponseController(l.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	context.AfterFunc(l.life, func() { _ = conn.Close() })
	told := leavingConn{conn, buffered.Reader, l.gone}
	return told, bufio.NewReadWriter(bufio.NewReader(told), bufio.NewWriter(told)), nil
}

type leavingConn struct {
	net.Conn
	buffered io.Reader
	gone     context.CancelFunc
}

func (c leavingConn) Read(p []byte) (int, error) {
	n, err := c.buffered.Read(p)
	if err != nil {
		c.gone()
	}
	return n, err
}

// upgrader is a response for upstream's server of SPDY, which first answers and
// then takes the connection over: what tunnels SPDY wants the answer on the
// connection. What the server reads has frames of a bounded size.
type upgrader struct {
	http.ResponseWriter
	upgrading bool
}

// WriteHeader implements [http.ResponseWriter].
func (u *upgrader) WriteHeader(code int) {
	if u.upgrading = code == http.StatusSwitchingProtocols; !u.upgrading {
		u.ResponseWriter.WriteHeader(code)
	}
}

// Hijack implements [http.Hijacker].
func (u *upgrader) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	if !u.upgrading {
		return nil, nil, errors.New("not upgraded yet")
	}
	conn, buffered, err := http.NewResponseController(u.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	answer := &http.Response{StatusCode: http.StatusSwitchingProtocols, ProtoMajor: 1, ProtoMinor: 1, Header: u.Header()}
	if err := answer.Write(conn); err != nil {
		_ = conn.Close()
		return nil, nil, err
	}
	var from io.Reader = conn
	if buffered != nil {
		from = buffered.Reader
	}
	return conn, bufio.NewReadWriter(bufio.NewReader(&frames{from: from}), bufio.NewWriter(conn)), nil
}

const (
	// maxData is how much of a stream is in one frame: upstream's server takes
	// up to 16 MB for each, once announced, and has hundreds waiting.
	maxData = 16 << 10
	// maxControl bounds other frames: those there are have a few hundred bytes.
	maxControl = 64 << 10

	frameHeader = 8
)

// frames makes large frames of SPDY many, and refuses those that cannot be.
type frames struct {
	from    io.Reader
	stream  [4]byte
	flags   byte
	whole   uint32 // that is to come of a data frame behind the part under way
	part    uint32 // that is to come of the part under way, or of a control frame
	pending []byte // of a header
}

var errFrame = errors.New("a frame is too large")

// Read implements [io.Reader].
func (f *frames) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	if len(f.pending) == 0 && f.part == 0 {
		if err := f.next(); err != nil {
			return 0, err
		}
	}
	if len(f.pending) > 0 {
		n := copy(p, f.pending)
		f.pending = f.pending[n:]
		return n, nil
	}
	n, err := f.from.Read(p[:min(len(p), int(f.part))])
	f.part -= uint32(n) //nolint:gosec // at most f.part
	return n, err
}

// next prepares the header that comes now.
func (f *frames) next() error {
	if f.whole == 0 {
		var header [frameHeader]byte
		if _, err := io.ReadFull(f.from, header[:]); err != nil {
			return err
		}
		length := binary.BigEndian.Uint32(header[4:]) & 0xffffff
		if control := header[0]&0x80 != 0; control || length <= maxData {
			if length > maxControl {
				return errFrame
			}
			f.part, f.pending = length, header[:]
			return nil
		}
		f.stream, f.flags, f.whole = [4]byte(header[:4]), header[4], length
	}
	f.part = min(f.whole, maxData)
	f.whole -= f.part
	size := f.part
	if f.whole == 0 {
		size |= uint32(f.flags) << 24 // that it is the last
	}
	f.pending = binary.BigEndian.AppendUint32(f.stream[:len(f.stream):len(f.stream)], size)
	return nil
}
