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
	"net/url"
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

// Session opens a stream of a kind that has parts to a subresource of v's host
// pod: exec, attach or portforward. The options are to be checked. It is SPDY
// that the host is spoken to, whatever clients speak: so what fails is told
// before the stream begins. The session ends with ctx, and with Close, which
// waits for nobody.
func (s *Streams) Session(ctx context.Context, v *corev1.Pod, subresource, protocol string, options url.Values) (httpstream.Connection, error) {
	ctx, cancel := context.WithCancel(ctx)
	session, err := s.session(ctx, cancel, v, subresource, protocol, options)
	if err != nil {
		cancel()
		return nil, err
	}
	return session, nil
}

func (s *Streams) session(
	ctx context.Context, cancel context.CancelFunc, v *corev1.Pod, subresource, protocol string, options url.Values,
) (httpstream.Connection, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "/?"+options.Encode(), http.NoBody)
	if err != nil {
		return nil, err
	}
	r.Header.Set(httpstream.HeaderConnection, httpstream.HeaderUpgrade)
	r.Header.Set(httpstream.HeaderUpgrade, spdy.HeaderSpdy31)
	r.Header.Set(httpstream.HeaderProtocolVersion, protocol)
	// A host that has refused closes the connection without saying so. Whoever
	// gets that one is to be given another: not sent, this says that net/http may.
	r.Header["Idempotency-Key"] = nil
	resp, err := s.Call(r, v, subresource)
	if err != nil {
		return nil, err
	}
	body, ok := resp.Body.(io.ReadWriteCloser)
	if !ok {
		_ = resp.Body.Close()
		return nil, unreachable(v)
	}
	inner, err := spdy.NewClientConnection(bodyConn{body})
	if err != nil {
		_ = body.Close()
		return nil, unreachable(v)
	}
	return session{inner, cancel}, nil
}

// session is a connection to the host of which Close waits for nobody.
type session struct {
	httpstream.Connection
	cancel context.CancelFunc
}

// Close ends the connection. First what carries it: a pod that does not read
// leaves a Write holding the lock by which the rest would say goodbye.
func (s session) Close() error {
	s.cancel()
	return s.Connection.Close()
}

// Forward is a way to the ports of a pod, by port forwarding: the kubelet
// connects inside the pod, so that there is no address, and nothing of the host's
// network, to reach by it.
type Forward struct {
	session httpstream.Connection
	last    atomic.Uint64
}

// Forward opens a way to v's ports, which ends with ctx and with Close.
func (s *Streams) Forward(ctx context.Context, v *corev1.Pod) (*Forward, error) {
	session, err := s.Session(ctx, v, "portforward", portForwardProtocol, nil)
	if err != nil {
		return nil, err
	}
	return &Forward{session: session}, nil
}

// Close ends all connections.
func (f *Forward) Close() error { return f.session.Close() }

// Done is closed when the way is closed, by whomever.
func (f *Forward) Done() <-chan bool { return f.session.CloseChan() }

// Dial connects to a port of v's. The connection ends with Close; ctx bounds the
// dialing only.
func (s *Streams) Dial(ctx context.Context, v *corev1.Pod, port uint16) (net.Conn, error) {
	life, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer context.AfterFunc(ctx, cancel)()
	f, err := s.Forward(life, v)
	if err != nil {
		cancel()
		return nil, err
	}
	t, err := f.connect(port)
	if err != nil {
		cancel()
		_ = f.Close()
		if errors.Is(err, errRefused) {
			return nil, err
		}
		return nil, unreachable(v)
	}
	t.closeOnce = sync.OnceValue(func() error {
		defer cancel()
		return f.Close()
	})
	return t, nil
}

// Carry connects to a port, and carries what is said until one side ends.
func (f *Forward) Carry(port uint16, client io.ReadWriter) error {
	t, err := f.connect(port)
	if err != nil {
		return fmt.Errorf("connect to port %d: %w", port, errRefused)
	}
	defer func() { _ = t.Close() }()
	go func() { // ends with the client, or with the write that fails
		_, _ = io.Copy(t.Stream, client)
		_ = t.Stream.Close() // what the client has to say
	}()
	_, err = io.Copy(client, t)
	return err
}

// connect opens the two streams of one forwarded connection.
func (f *Forward) connect(port uint16) (*tunnel, error) {
	headers := http.Header{}
	headers.Set(corev1.PortHeader, strconv.Itoa(int(port)))
	headers.Set(corev1.PortForwardRequestIDHeader, strconv.FormatUint(f.last.Add(1), 10))
	headers.Set(corev1.StreamType, corev1.StreamTypeError)
	failed, err := f.session.CreateStream(headers)
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
	data, err := f.session.CreateStream(headers)
	if err != nil {
		// A port that is closed can end this stream, or the session, before it is
		// known to be open.
		ended := false
		select {
		case <-f.Done():
			ended = true
		default:
		}
		f.session.RemoveStreams(failed)
		_ = failed.Reset()
		<-t.told
		if !ended || t.failure != nil {
			return nil, fmt.Errorf("connect to port %d: %w", port, errRefused)
		}
		return nil, fmt.Errorf("create data stream: %w", err)
	}
	t.Stream = data
	t.closeOnce = sync.OnceValue(func() error {
		f.session.RemoveStreams(failed, data)
		_ = failed.Reset()
		return data.Reset()
	})
	return t, nil
}

// Said is what the host says of a pod of v's in the middle of a stream, in the
// space's words.
func (s *Streams) Said(v *corev1.Pod, message string) string {
	host, ok := s.host.Pod(s.space, v)
	if !ok {
		return fmt.Sprintf("pod %q is not there any more", v.Name)
	}
	return s.space.Scrub(message, v, host)
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
