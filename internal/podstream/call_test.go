// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package podstream

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/util/exec"
	"k8s.io/streaming/pkg/httpstream"

	"github.com/berth-dev/berth/internal/testruntime"
)

// S5: exec in every version that there is, with input that ends, both outputs and
// a code.
func TestExecCarriesInputOutputsAndTheCode(t *testing.T) {
	env := newEnv(t)
	query := "command=sh&command=-c&command=cat%3B+echo+done+%3E%262%3B+exit+7&stdin=1&stdout=1&stderr=1"
	for name, e := range env.executors(t, query, endsInput) {
		t.Run(name, func(t *testing.T) {
			var out, errOut bytes.Buffer
			ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
			defer cancel()
			in := io.Reader(strings.NewReader(strings.Repeat("much of it\n", 100_000)))
			err := e.StreamWithContext(ctx, remotecommand.StreamOptions{Stdin: in, Stdout: &out, Stderr: &errOut})
			var exit exec.CodeExitError
			if strings.Contains(name, "v4") || strings.Contains(name, "v5") {
				if !errors.As(err, &exit) || exit.Code != 7 {
					t.Errorf("command ended with %v, want 7", err)
				}
			} else if err == nil || !strings.Contains(err.Error(), "exit status 7") {
				t.Errorf("command ended with %v, want 7", err)
			}
			if out.Len() != 1_100_000 || errOut.String() != "done\n" {
				t.Errorf("%d bytes came back; stderr is %q", out.Len(), errOut.String())
			}
		})
	}
	env.free(t)
}

// S5: without input, in every version; and that it went well is told, too.
func TestExecThatSucceedsIsNoError(t *testing.T) {
	env := newEnv(t)
	for name, e := range env.executors(t, "command=echo&command=hello&stdout=1&stderr=1") {
		t.Run(name, func(t *testing.T) {
			var out, errOut bytes.Buffer
			if err := e.StreamWithContext(t.Context(), remotecommand.StreamOptions{Stdout: &out, Stderr: &errOut}); err != nil || out.String()+errOut.String() != "hello\n" {
				t.Errorf("exec says %q and %q, %v", out.String(), errOut.String(), err)
			}
		})
	}
	env.free(t)
}

type oneSize chan remotecommand.TerminalSize

func (s oneSize) Next() *remotecommand.TerminalSize {
	if size, ok := <-s; ok {
		return &size
	}
	return nil
}

// S5: a terminal's size reaches the command, while it runs.
func TestATerminalIsResized(t *testing.T) {
	env := newEnv(t)
	var width uint16 = 100
	for name, e := range env.executors(t, "command=cat&stdin=1&stdout=1&tty=1", endsInput, resizes) {
		t.Run(name, func(t *testing.T) {
			width++
			in, feed := io.Pipe()
			sizes, done := make(oneSize, 1), make(chan error, 1)
			sizes <- remotecommand.TerminalSize{Width: width, Height: 30}
			go func() {
				done <- e.StreamWithContext(t.Context(), remotecommand.StreamOptions{Stdin: in, Stdout: io.Discard, Tty: true, TerminalSizeQueue: sizes})
			}()
			eventually(t, "the terminal is resized", func() error {
				if sizes := env.runtime.Sizes(); len(sizes) == 0 || sizes[len(sizes)-1].Width != width {
					return fmt.Errorf("sizes are %v", sizes)
				}
				return nil
			})
			close(sizes)
			_ = feed.Close()
			if err := <-done; err != nil {
				t.Error(err)
			}
		})
	}
	env.free(t)
}

// S5: much is carried both ways at once, and none of it is lost.
func TestMuchIsCarriedBothWays(t *testing.T) {
	const size = 64 << 20
	env := newEnv(t)
	for name, e := range env.executors(t, "command=cat&stdin=1&stdout=1") {
		if !strings.Contains(name, "SPDY v4") && !strings.Contains(name, "v5") {
			continue
		}
		t.Run(name, func(t *testing.T) {
			in, out := sha256.New(), sha256.New()
			random := io.TeeReader(io.LimitReader(rand.NewChaCha8([32]byte{1}), size), in)
			if err := e.StreamWithContext(t.Context(), remotecommand.StreamOptions{Stdin: random, Stdout: out}); err != nil {
				t.Fatal(err)
			}
			if sum := func(h hash.Hash) string { return fmt.Sprintf("%x", h.Sum(nil)) }; sum(in) != sum(out) {
				t.Errorf("%s came back of %s", sum(out), sum(in))
			}
		})
	}
	env.free(t)
}

// S5: several ports, and several connections to each, in one call.
func TestSeveralPortsAreForwarded(t *testing.T) {
	env := newEnv(t)
	first, second := serveEcho(t, "first "), serveEcho(t, "second ")
	for name, dialer := range env.forwarders(t) {
		t.Run(name, func(t *testing.T) {
			ports := testruntime.Forward(t, dialer, first, second)
			for range 300 { // more than may be open at once
				for i, greeting := range []string{"first ", "second "} {
					if got := echo(t, int(ports[i].Local), "hello"); got != greeting+"hello" {
						t.Fatalf("port %d says %q", ports[i].Remote, got)
					}
				}
			}
		})
	}
	env.free(t)
}

// serveEcho serves a port that greets, and says what it was told.
func serveEcho(t *testing.T, greeting string) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = conn.Close() }()
				_, _ = io.WriteString(conn, greeting)
				_, _ = io.Copy(conn, conn)
			}()
		}
	}()
	t.Cleanup(func() { _ = l.Close(); <-done })
	_, port, _ := net.SplitHostPort(l.Addr().String())
	n, _ := strconv.Atoi(port)
	return n
}

func echo(t *testing.T, port int, text string) string {
	t.Helper()
	conn, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if _, err := io.WriteString(conn, text); err != nil {
		t.Fatal(err)
	}
	closeWrite(t, conn)
	all, err := io.ReadAll(conn)
	if err != nil {
		t.Fatal(err)
	}
	return string(all)
}

// N1: what a host says of a port that is closed has its sandboxes in it; and that
// it is closed is told, though the host may end the stream before it has begun.
func TestAClosedPortIsToldInTheClientsWords(t *testing.T) {
	env := newEnv(t)
	for name, dialer := range env.forwarders(t) {
		t.Run(name, func(t *testing.T) {
			conn, _, err := dialer.Dial(portforward.PortForwardProtocolV1Name)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = conn.Close() }()
			for i := range 20 {
				failed, _ := connect(t, conn, 1, i)
				text, err := io.ReadAll(failed)
				if got := string(text); err != nil || got != "error forwarding port 1 to pod web: connection refused" {
					t.Fatalf("client is told %q, %v", got, err)
				}
			}
		})
	}
	env.free(t)
}

// connect opens the two streams of a connection.
func connect(t *testing.T, conn httpstream.Connection, port, request int) (failed, data httpstream.Stream) {
	t.Helper()
	headers := http.Header{}
	headers.Set(corev1.PortHeader, strconv.Itoa(port))
	headers.Set(corev1.PortForwardRequestIDHeader, strconv.Itoa(request))
	headers.Set(corev1.StreamType, corev1.StreamTypeError)
	failed, err := conn.CreateStream(headers)
	if err != nil {
		t.Fatal(err)
	}
	headers.Set(corev1.StreamType, corev1.StreamTypeData)
	if data, err = conn.CreateStream(headers); err != nil {
		t.Fatal(err)
	}
	return failed, data
}

// N1: what a container runtime says once a stream has begun.
func TestAFailureIsToldInTheClientsWords(t *testing.T) {
	env := newEnv(t)
	for name, e := range env.executors(t, "command=broken&stdout=1") {
		t.Run(name, func(t *testing.T) {
			err := e.StreamWithContext(t.Context(), remotecommand.StreamOptions{Stdout: io.Discard})
			if err == nil || strings.Contains(err.Error(), secret) || !strings.Contains(err.Error(), "error executing command in container: no such container on the node") {
				t.Errorf("client is told %v", err)
			}
		})
	}
	env.free(t)
}

// S5: what proxies reach pods by.
func TestAConnectionReachesAPortOrSaysWhyNot(t *testing.T) {
	env := newEnv(t)
	port := serveEcho(t, "hi ")
	call := &Call{Options: Options{Forward: true}}
	for range 20 {
		host, err := env.dial(call, &url.URL{Path: "/portforward"})
		if err != nil {
			t.Fatal(err)
		}
		conn := Dial(host, uint16(port))
		if _, err := io.WriteString(conn, strings.Repeat("x", 100_000)); err != nil {
			t.Fatal(err)
		}
		got := make([]byte, 100_003)
		if _, err := io.ReadFull(conn, got); err != nil || !strings.HasPrefix(string(got), "hi xx") {
			t.Errorf("port says %.10q, %v", got, err)
		}
		_ = conn.Close()
		if host, err = env.dial(call, &url.URL{Path: "/portforward"}); err != nil {
			t.Fatal(err)
		}
		closed := Dial(host, 1)
		if text, err := io.ReadAll(closed); err == nil || err.Error() != "connect to port 1: connection refused" || len(text) > 0 {
			t.Errorf("closed port says %q, %v", text, err)
		}
		_ = closed.Close()
	}
	env.free(t)
}
