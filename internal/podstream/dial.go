// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package podstream

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/berth-dev/berth/internal/safego"
)

// Dial connects to a port by a call of port forwarding, which to is of and which
// the connection owns. That the port does not answer is known when the connection
// is read: hosts say so late.
func Dial(to Host, port uint16) net.Conn {
	read, write := io.Pipe()
	c := &dialed{to: to, host: newHost(to), read: read}
	c.host.open(&stream{id: 1, kind: corev1.StreamTypeError, port: port, clientDone: true}, "0")
	c.host.open(&stream{id: dialedData, kind: corev1.StreamTypeData, port: port}, "0")
	safego.Go(&c.work, "read from a pod", func() {
		said := &received{to: write}
		c.host.run(said)
		_ = write.CloseWithError(cmp.Or(said.failure, io.EOF))
	}, func(err error) {
		_ = to.Close()
		_ = write.CloseWithError(err)
	})
	return c
}

const dialedData = 3 // the stream that says what the connection does

// dialed is a connection to a port of a pod.
type dialed struct {
	to   Host
	host *host
	read *io.PipeReader
	work sync.WaitGroup

	writing sync.Mutex

	mu    sync.Mutex
	alarm *time.Timer // ends the connection, if there is one
}

func (c *dialed) Read(p []byte) (int, error) { return c.read.Read(p) }

func (c *dialed) Write(p []byte) (int, error) {
	c.writing.Lock()
	defer c.writing.Unlock()
	if err := c.host.data(dialedData, 0, bytes.NewReader(p), len(p)); err != nil {
		return 0, err
	}
	if c.host.deaf {
		return 0, net.ErrClosed
	}
	return len(p), nil
}

// Close ends the connection, and whatever is under way on it.
func (c *dialed) Close() error {
	_ = c.SetWriteDeadline(time.Time{})
	err := errors.Join(c.to.Close(), c.read.Close())
	c.work.Wait()
	return err
}

// LocalAddr names no address.
func (c *dialed) LocalAddr() net.Addr { return forwarded{} }

// RemoteAddr names no address.
func (c *dialed) RemoteAddr() net.Addr { return forwarded{} }

// SetDeadline is SetWriteDeadline: reading has no end of its own.
func (c *dialed) SetDeadline(t time.Time) error { return c.SetWriteDeadline(t) }

// SetReadDeadline is not there: those who read bound it by Close.
func (c *dialed) SetReadDeadline(time.Time) error { return nil }

// SetWriteDeadline has the whole connection end at t, unless it is set anew before:
// a part of a frame is nothing that could be gone on with. TLS says goodbye so, to
// peers that may not read any more.
func (c *dialed) SetWriteDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.alarm != nil {
		c.alarm.Stop()
		c.alarm = nil
	}
	if !t.IsZero() {
		c.alarm = safego.AfterFunc(time.Until(t), "end a connection to a pod", func() { _ = c.to.Close() })
	}
	return nil
}

// forwarded is the address of what is reached by port forwarding.
type forwarded struct{}

func (forwarded) Network() string { return "tcp" }
func (forwarded) String() string  { return "pod" }

// received collects what a connection has to read.
type received struct {
	to      *io.PipeWriter
	failure error
}

func (h *received) opened(*stream) error { return nil }

func (h *received) data(s *stream, p []byte, ends bool) error {
	if len(p) > headSize {
		if _, err := h.to.Write(p[headSize:]); err != nil {
			return err
		}
	}
	if ends {
		return h.ended(s)
	}
	return nil
}

func (h *received) said(s *stream, text []byte) error {
	h.failure = fmt.Errorf("connect to port %d: %s", s.port, reason(string(text)))
	return nil
}

// ended ends the connection with the stream on which hosts say what failed: they
// end it last.
func (h *received) ended(s *stream) error {
	if s.kind == corev1.StreamTypeError {
		return io.EOF
	}
	return nil
}

func (h *received) pinged(uint32) error { return nil }
