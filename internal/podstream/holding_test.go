// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package podstream

import (
	"io"
	"net"
	"runtime"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// S5: whoever announces a lot has nothing set aside for it, in either protocol.
func TestWhatIsAnnouncedTakesNoMemory(t *testing.T) {
	const calls = 50
	env := newEnv(t)
	before := heap()
	var open []net.Conn
	for range calls {
		conn, from := env.upgrade(t, cat, "v4.channel.k8s.io")
		var h headers
		for i, kind := range []string{corev1.StreamTypeError, corev1.StreamTypeStdin, corev1.StreamTypeStdout} {
			if _, err := conn.Write(syn(uint32(2*i+1), &h, [2]string{"streamtype", kind})); err != nil {
				t.Fatal(err)
			}
		}
		for range 3 {
			if _, err := readFrame(from); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := conn.Write([]byte("\x00\x00\x00\x03\x00\xff\xff\xffx")); err != nil { // 16 MB of input, and no more of it
			t.Fatal(err)
		}
		socket := env.socket(t, cat, "v5.channel.k8s.io").NetConn()
		if _, err := socket.Write([]byte("\x82\xff\x00\x00\x00\x00\x40\x00\x00\x00\x00\x00\x00\x00\x00x")); err != nil { // 1 GB
			t.Fatal(err)
		}
		open = append(open, conn, socket)
	}
	// Client, server and host are all in this process, and the host's are the most.
	if each := (heap() - before) / (2 * calls); each > 2<<20 {
		t.Errorf("a call takes %d bytes", each)
	}
	for _, conn := range open {
		_ = conn.Close()
	}
	env.free(t)
}

func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// readFrame reads a frame of the server's.
func readFrame(r io.Reader) (head, error) {
	h, err := readHead(r)
	if err == nil {
		_, err = io.CopyN(io.Discard, r, int64(h.length))
	}
	return h, err
}

// stuck is a client's connection that takes nothing.
type stuck struct {
	net.Conn
	begun, closed chan struct{}
	begin, close  func()
}

func newStuck() *stuck {
	s := &stuck{begun: make(chan struct{}), closed: make(chan struct{})}
	s.begin, s.close = sync.OnceFunc(func() { close(s.begun) }), sync.OnceFunc(func() { close(s.closed) })
	return s
}

func (s *stuck) Write([]byte) (int, error) {
	s.begin()
	<-s.closed
	return 0, net.ErrClosed
}

func (s *stuck) Close() error { s.close(); return nil }

// endless says the same again and again, and counts.
type endless struct {
	frame []byte
	count int
}

func (e *endless) Read(p []byte) (int, error) {
	n := copy(p, e.frame[e.count%len(e.frame):])
	e.count += n
	return n, nil
}

// S5: who never reads is not read from: what a command says waits where it runs.
func TestWhoNeverReadsIsHeldNothingFor(t *testing.T) {
	frame := make([]byte, headSize+1<<20)
	putDataHead(frame, 3, false, 1<<20)
	says, conn := &endless{frame: frame}, newStuck()
	client, err := newSPDYClient(&Call{}, conn, nil)
	if err != nil {
		t.Fatal(err)
	}
	h := newHost(struct {
		io.Reader
		io.Writer
	}{says, io.Discard})
	h.open(&stream{id: 3, kind: corev1.StreamTypeStdout}, "")
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		h.run(client)
	}()
	<-conn.begun
	_ = conn.Close()
	<-ended
	if most := maxPart + 8<<10; says.count > most {
		t.Errorf("%d bytes were read for a client that reads nothing, want at most %d", says.count, most)
	}
}

// S5: a client that leaves is found out, though nothing is read from it: its
// command does not read its input, and says nothing.
func TestWhoLeavesWhileNobodyReadsHoldsNothing(t *testing.T) {
	env := newEnv(t)
	env.keepalive = 10 * time.Millisecond
	fill := func(t *testing.T, conn net.Conn, part []byte) {
		t.Helper()
		for {
			_ = conn.SetWriteDeadline(time.Now().Add(200 * time.Millisecond))
			if n, err := conn.Write(part); err != nil {
				t.Logf("%d bytes, %v", n, err)
				return
			}
		}
	}
	t.Run("SPDY", func(t *testing.T) {
		conn, _ := env.upgrade(t, "/exec?command=deaf&stdin=1", "v4.channel.k8s.io")
		var h headers
		_, _ = conn.Write(syn(1, &h, [2]string{"streamtype", corev1.StreamTypeError}))
		_, _ = conn.Write(syn(3, &h, [2]string{"streamtype", corev1.StreamTypeStdin}))
		fill(t, conn, append([]byte("\x00\x00\x00\x03\x00\x01\x00\x00"), make([]byte, 1<<16)...))
		_ = conn.Close()
		env.free(t)
	})
	t.Run("WebSocket", func(t *testing.T) {
		conn := env.socket(t, "/exec?command=deaf&stdin=1", "v5.channel.k8s.io").NetConn()
		fill(t, conn, append([]byte("\x82\xff\x00\x00\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00"), make([]byte, 1<<16)...))
		_ = conn.Close()
		env.free(t)
	})
}

// S5: a client that leaves early frees its place, whenever it does.
func TestWhoLeavesEarlyHoldsNothing(t *testing.T) {
	env := newEnv(t)
	for name, leave := range map[string]func(*testing.T){
		"AtOnce": func(t *testing.T) { conn, _ := env.upgrade(t, cat, "v4.channel.k8s.io"); _ = conn.Close() },
		"WithOneStream": func(t *testing.T) {
			conn, from := env.upgrade(t, cat, "v4.channel.k8s.io")
			_, _ = conn.Write(syn(1, &headers{}, [2]string{"streamtype", corev1.StreamTypeError}))
			_, _ = readFrame(from)
			_ = conn.Close()
		},
		"OfForwarding": func(t *testing.T) { conn, _ := env.upgrade(t, "/portforward", forwardProtocol); _ = conn.Close() },
		"OfSocket":     func(t *testing.T) { _ = env.socket(t, cat, "v5.channel.k8s.io").NetConn().Close() },
		"OfTunnel":     func(t *testing.T) { _ = env.socket(t, "/portforward", tunnelPrefix+forwardProtocol).NetConn().Close() },
		"OfPorts":      func(t *testing.T) { _ = env.socket(t, "/portforward?ports=1", "v4.channel.k8s.io").NetConn().Close() },
	} {
		t.Run(name, func(t *testing.T) {
			for range 20 {
				leave(t)
			}
			env.free(t)
		})
	}
}
