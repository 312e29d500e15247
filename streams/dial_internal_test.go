// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package streams

import (
	"context"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"

	"github.com/berth-dev/berth/internal/podstream"
	"github.com/berth-dev/berth/internal/testhost"
)

// noted tells when a large write has begun.
type noted struct {
	net.Conn
	begun func()
}

func (n noted) Write(p []byte) (int, error) {
	if len(p) > 1<<10 {
		n.begun()
	}
	return n.Conn.Write(p)
}

// deaf does not read any more once the large write has begun.
type deaf struct {
	net.Conn
	begun, end <-chan struct{}
}

func (d deaf) Read(p []byte) (int, error) {
	select {
	case <-d.begun:
		<-d.end
		return 0, io.EOF
	default:
		return d.Conn.Read(p)
	}
}

const large = 1 << 20

// S5: a pod that never reads its port does not hold a slot for ever: it is free
// again once the client has gone away.
func TestAPodThatDoesNotReadHoldsNoSlot(t *testing.T) {
	open := newSlots(1)
	life, cancel := context.WithCancel(t.Context())
	ctx, release, err := open.take(life)
	if err != nil {
		t.Fatal(err)
	}
	begun := make(chan struct{})
	near, far := net.Pipe()
	server, err := spdy.NewServerConnection(deaf{far, begun, t.Context().Done()}, func(httpstream.Stream, <-chan struct{}) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = far.Close(); <-server.CloseChan() })
	body, ok := held(ctx, noted{near, sync.OnceFunc(func() { close(begun) })}, release).(podstream.Host)
	if !ok {
		t.Fatal("a connection is held as something else")
	}
	conn := closing{podstream.Dial(body, 80), cancel}
	written, closed := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(written)
		for err := error(nil); err == nil; {
			_, err = conn.Write(make([]byte, large))
		}
	}()
	<-begun
	if _, _, err := open.take(t.Context()); err == nil {
		t.Fatal("the slot is free while the connection is open")
	}
	go func() {
		defer close(closed)
		_ = conn.Close()
	}()
	select {
	case <-closed:
	case <-time.After(testhost.Timeout):
		t.Fatal("the connection does not close")
	}
	<-written
	for end := time.Now().Add(testhost.Timeout); ; time.Sleep(time.Millisecond) {
		if _, release, err := open.take(t.Context()); err == nil {
			release()
			return
		}
		if time.Now().After(end) {
			t.Fatal("the slot is not free again")
		}
	}
}
