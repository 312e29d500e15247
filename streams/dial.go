// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package streams

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"
)

// portForwardProtocol is the version of port forwarding that there is.
const portForwardProtocol = "portforward.k8s.io"

// Dial connects to a port of v's, by port forwarding: the kubelet connects inside
// the pod, so that there is no address, and nothing of the host's network, to
// reach by it. The connection ends with Close; ctx bounds the dialing only.
func (s *Streams) Dial(ctx context.Context, v *corev1.Pod, port uint16) (net.Conn, error) {
	life, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer context.AfterFunc(ctx, cancel)()
	r, err := http.NewRequestWithContext(life, http.MethodPost, "/", http.NoBody)
	if err != nil {
		cancel()
		return nil, err
	}
	r.Header.Set(httpstream.HeaderConnection, httpstream.HeaderUpgrade)
	r.Header.Set(httpstream.HeaderUpgrade, spdy.HeaderSpdy31)
	r.Header.Set(httpstream.HeaderProtocolVersion, portForwardProtocol)
	resp, err := s.Call(r, v, "portforward")
	if err != nil {
		cancel()
		return nil, err
	}
	body, ok := resp.Body.(io.ReadWriteCloser)
	if !ok {
		cancel()
		_ = resp.Body.Close()
		return nil, unreachable(v)
	}
	session, err := spdy.NewClientConnection(bodyConn{body})
	if err != nil {
		cancel()
		_ = body.Close()
		return nil, unreachable(v)
	}
	conn, err := forward(session, cancel, port)
	if err != nil {
		_ = session.Close()
		cancel()
		if errors.Is(err, errRefused) {
			return nil, err
		}
		return nil, unreachable(v)
	}
	return conn, nil
}

// forward opens the two streams of one forwarded connection.
func forward(session httpstream.Connection, cancel context.CancelFunc, port uint16) (*tunnel, error) {
	headers := http.Header{}
	headers.Set(corev1.PortHeader, strconv.Itoa(int(port)))
	headers.Set(corev1.PortForwardRequestIDHeader, "0")
	headers.Set(corev1.StreamType, corev1.StreamTypeError)
	failed, err := session.CreateStream(headers)
	if err != nil {
		return nil, fmt.Errorf("create error stream: %w", err)
	}
	_ = failed.Close() // nothing is written to it
	t := &tunnel{told: make(chan struct{})}
	go func() {
		defer close(t.told)
		message, _ := io.ReadAll(io.LimitReader(failed, maxRefusal)) // ends with the session
		if len(message) > 0 {
			t.failure = fmt.Errorf("connect to port %d: %w", port, errRefused)
		}
	}()
	headers.Set(corev1.StreamType, corev1.StreamTypeData)
	data, err := session.CreateStream(headers)
	if err != nil {
		// A port that is closed can end the session before this stream is known to
		// be open; what came before the end is still there to be read.
		_ = session.Close()
		<-t.told
		return nil, cmp.Or(t.failure, fmt.Errorf("create data stream: %w", err))
	}
	t.Stream = data
	t.closeOnce = sync.OnceValue(func() error {
		// First: a pod that does not read leaves a Write holding the lock by which
		// the rest would say goodbye, and only the end of the connection frees it.
		cancel()
		_ = data.Reset()
		return session.Close()
	})
	return t, nil
}

// errRefused stands for whatever kubelets say, which is of the inside of nodes.
var errRefused = errors.New("connection refused")

// tunnel is a connection to a port of a pod.
type tunnel struct {
	httpstream.Stream
	closeOnce func() error
	some      atomic.Bool // has been read

	told    chan struct{} // closed when the kubelet has said what failed, if anything
	failure error         // valid then
}

var _ net.Conn = &tunnel{}

// Read says why the connection failed, if it did before anything was read: that
// the kubelet could not connect is known only after it has said that it will.
func (t *tunnel) Read(p []byte) (int, error) {
	n, err := t.Stream.Read(p)
	if n > 0 {
		t.some.Store(true)
	}
	if err == nil || t.some.Load() {
		return n, err
	}
	<-t.told
	return n, cmp.Or(t.failure, err)
}

// Close ends the connection.
func (t *tunnel) Close() error { return t.closeOnce() }

// LocalAddr names no address.
func (t *tunnel) LocalAddr() net.Addr { return forwarded{} }

// RemoteAddr names no address.
func (t *tunnel) RemoteAddr() net.Addr { return forwarded{} }

// SetDeadline is not there: those who read and write bound it by Close.
func (t *tunnel) SetDeadline(time.Time) error { return nil }

// SetReadDeadline is not there.
func (t *tunnel) SetReadDeadline(time.Time) error { return nil }

// SetWriteDeadline is not there.
func (t *tunnel) SetWriteDeadline(time.Time) error { return nil }

// bodyConn is the body of a response that switched protocols.
type bodyConn struct{ io.ReadWriteCloser }

func (bodyConn) LocalAddr() net.Addr              { return forwarded{} }
func (bodyConn) RemoteAddr() net.Addr             { return forwarded{} }
func (bodyConn) SetDeadline(time.Time) error      { return nil }
func (bodyConn) SetReadDeadline(time.Time) error  { return nil }
func (bodyConn) SetWriteDeadline(time.Time) error { return nil }

// forwarded is the address of what is reached by port forwarding.
type forwarded struct{}

func (forwarded) Network() string { return "tcp" }
func (forwarded) String() string  { return "pod" }
