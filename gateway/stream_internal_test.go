// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apiserver/pkg/endpoints/responsewriter"
)

// hijack takes a connection over in each way in which handlers do.
func hijack() map[string]func(http.ResponseWriter) (net.Conn, *bufio.ReadWriter, error) {
	byController := func(w http.ResponseWriter) (net.Conn, *bufio.ReadWriter, error) {
		return http.NewResponseController(w).Hijack()
	}
	return map[string]func(http.ResponseWriter) (net.Conn, *bufio.ReadWriter, error){
		"hijacker":   func(w http.ResponseWriter) (net.Conn, *bufio.ReadWriter, error) { return w.(http.Hijacker).Hijack() },
		"controller": byController,
		"wrapped": func(w http.ResponseWriter) (net.Conn, *bufio.ReadWriter, error) {
			return byController(responsewriter.WrapForHTTP1Or2(&statusWriter{ResponseWriter: w, moved: func(int64, int64) {}}))
		},
	}
}

const upgraded = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: test\r\n\r\n"

// upgrade connects to a server of the limiter's, whose handler takes the connection over by hijack and gives it to serve.
func upgrade(t *testing.T, l *Limiter, hijack func(http.ResponseWriter) (net.Conn, *bufio.ReadWriter, error), serve func(net.Conn, *bufio.ReadWriter)) net.Conn {
	t.Helper()
	server := httptest.NewServer(l.limit("a", "", nil, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		conn, buffered, err := hijack(w)
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		if _, err := io.WriteString(conn, upgraded); err != nil {
			t.Error(err)
			return
		}
		serve(conn, buffered)
	})))
	t.Cleanup(server.Close)
	client, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	if err := client.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
		t.Fatal(err)
	}
	_, err = io.WriteString(client, "POST /api/v1/namespaces/x/pods/y/portforward HTTP/1.1\r\nHost: berth\r\nConnection: Upgrade\r\nUpgrade: test\r\n\r\nearly\n")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(client, make([]byte, len(upgraded))); err != nil {
		t.Fatal(err)
	}
	return client
}

// waitsForTurn returns when a part of space a's streams waits for its turn.
func waitsForTurn(t *testing.T, l *Limiter) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		l.others.mu.Lock()
		waiting := len(l.others.waiting)
		l.others.mu.Unlock()
		if waiting > 0 {
			return
		}
		if time.Now().After(end) {
			t.Fatal("the stream takes no turn")
		}
	}
}

// busyLimiter is one of a process in which goroutines wait for a processor, and several spaces are in use.
func busyLimiter(t *testing.T) *Limiter {
	t.Helper()
	l := NewLimiter(LimiterConfig{})
	wait := 10 * time.Millisecond
	l.others = pacedTurns(&wait)
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		one, _, _ := l.others.shareOf(&line{tenant: ofSpace + "a"})
		if two, _, _ := l.others.shareOf(&line{tenant: ofSpace + "b"}); max(one, two) < l.others.share {
			return l
		}
		if time.Now().After(end) {
			t.Fatal("the process is not busy")
		}
	}
}

// L1, L3: what exec, attach, and port forwarding send and receive takes turns in a busy process, as the parts of a watch do,
// however the connection is taken over. It arrives as it was sent.
func TestHostileStreamsTakeTurns(t *testing.T) {
	for name, hijack := range hijack() {
		t.Run(name, func(t *testing.T) {
			l := busyLimiter(t)
			send := make(chan string)
			ended := make(chan error)
			client := upgrade(t, l, hijack, func(conn net.Conn, buffered *bufio.ReadWriter) {
				for text := range send {
					if _, err := io.WriteString(conn, text); err != nil {
						ended <- err
						return
					}
				}
				for _, want := range []string{"early\n", "late\n"} {
					if got, err := buffered.ReadString('\n'); err != nil || got != want {
						ended <- fmt.Errorf("received %q, want %q: %w", got, want, err)
						return
					}
				}
				ended <- nil
			})
			busy := func() (release func()) {
				release, err := l.others.take(t.Context(), flow{tenant: ofSpace + "a"}, l.others.share)
				if err != nil {
					t.Fatal(err)
				}
				return release
			}

			release := busy()
			send <- "sent"
			waitsForTurn(t, l)
			release()
			if _, err := io.ReadFull(client, make([]byte, len("sent"))); err != nil {
				t.Error(err)
			}

			release = busy()
			if _, err := io.WriteString(client, "late\n"); err != nil {
				t.Fatal(err)
			}
			close(send)
			waitsForTurn(t, l)
			release()
			if err := <-ended; err != nil {
				t.Error(err)
			}
			for end := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
				l.others.mu.Lock()
				used := l.others.used
				l.others.mu.Unlock()
				if used == 0 {
					break
				}
				if time.Now().After(end) {
					t.Fatalf("%d units are in use after the stream's end", used)
				}
			}
		})
	}
}

// A connection of HTTP/2 can't be taken over, with a limiter as without.
func TestConnectionsOfHTTP2AreNotTakenOver(t *testing.T) {
	server := httptest.NewUnstartedServer(NewLimiter(LimiterConfig{}).limit("a", "", nil, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, hijacker := w.(http.Hijacker)
		_, _, err := http.NewResponseController(w).Hijack()
		_, _ = fmt.Fprint(w, r.ProtoMajor, hijacker, errors.Is(err, http.ErrNotSupported))
	})))
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	resp, err := server.Client().Get(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if got, err := io.ReadAll(resp.Body); err != nil || string(got) != "2 false true" {
		t.Errorf("got %q: %v", got, err)
	}
}

// A part of a stream whose turn does not come waits for a second at most, and no longer than until the stream is closed. Its
// request may have ended before.
func TestAPartOfAStreamWaitsASecondAtMost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns := newTurns(4, 1)
		busy, err := turns.take(t.Context(), flow{tenant: "a"}, 1)
		if err != nil {
			t.Fatal(err)
		}
		defer busy()
		near, far := net.Pipe()
		defer far.Close()
		received := &strings.Builder{}
		go func() { _, _ = io.Copy(received, far) }()
		s := newStream(t.Context(), near, func() bool { return true }, func(ctx context.Context) (func(), error) { return turns.take(ctx, flow{tenant: "a"}, partCost) })
		begun := time.Now()
		if _, err := io.WriteString(s, "part"); err != nil || time.Since(begun) != partWait {
			t.Errorf("after %v: %v", time.Since(begun), err)
		}
		begun = time.Now()
		go func() {
			<-time.After(partWait / 2)
			_ = s.Close()
		}()
		if _, err := io.WriteString(s, "part"); !errors.Is(err, net.ErrClosed) || time.Since(begun) != partWait/2 {
			t.Errorf("it is closed, after %v: %v", time.Since(begun), err)
		}
		synctest.Wait()
		if received.String() != "part" {
			t.Errorf("received is %q", received)
		}
	})
}

// L1, L3: what is uploaded through a proxy takes turns in a busy process once the request's own turn is over, and arrives as it
// was sent. So does the body of any other request that is longer than an API server reads.
func TestHostileUploadsTakeTurns(t *testing.T) {
	for name, c := range map[string]struct {
		path  string
		first int // as much is sent without another turn
	}{
		"service proxy":  {"/api/v1/namespaces/x/services/y/proxy/upload", 5},
		"pod proxy":      {"/api/v1/namespaces/x/pods/y/proxy/upload", 5},
		"aggregated API": {"/apis/example.com/v1/namespaces/x/uploads", maxObject},
	} {
		t.Run(name, func(t *testing.T) {
			l := busyLimiter(t)
			received, ended := make(chan string), make(chan struct{})
			handler := l.limit("a", "", nil, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				defer close(ended)
				defer r.Body.Close()
				part := make([]byte, maxObject)
				for {
					n, err := r.Body.Read(part)
					if n > 0 {
						received <- string(part[:n])
					}
					if err != nil {
						return
					}
				}
			}))
			body, client := io.Pipe()
			r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, c.path, body)
			go handler.ServeHTTP(flushRecorder{httptest.NewRecorder()}, r)
			send := func(text string) {
				if _, err := io.WriteString(client, text); err != nil {
					t.Error(err)
				}
			}
			first := strings.Repeat("f", c.first)
			go send(first)
			if got := <-received; got != first {
				t.Errorf("received %d bytes, want %d", len(got), len(first))
			}
			await(t, l.others, "the request's own turn does not end", func() bool { return l.others.used == 0 })
			release, err := l.others.take(t.Context(), flow{tenant: ofSpace + "a"}, l.others.share)
			if err != nil {
				t.Fatal(err)
			}
			go send("second")
			waitsForTurn(t, l)
			release()
			if got := <-received; got != "second" {
				t.Errorf("received %q", got)
			}
			_ = client.Close()
			<-ended
			await(t, l.others, "the upload keeps its turn", func() bool { return l.others.used == 0 })
		})
	}
}

// A stream that carries much notices that the process has become busy, and when it no longer is.
func TestAStreamNoticesThatTheProcessIsBusy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewLimiter(LimiterConfig{})
		wait := time.Duration(0)
		l.others = pacedTurns(&wait)
		busy, other := l.busy(ofSpace+"a"), l.busy(ofSpace+"b")
		for _, c := range []struct {
			wait time.Duration
			want bool
		}{{0, false}, {10 * time.Millisecond, true}, {0, false}} {
			wait = c.wait
			for range 20_000 { // of the pace's steps up, which are small, some 150 are needed
				<-time.After(time.Millisecond)
				busy()
				other()
			}
			if got := busy(); got != c.want {
				t.Errorf("while goroutines wait for %v: %v", wait, got)
			}
		}
	})
}

// BenchmarkBusy measures what a part of a stream costs to find out whether the process is busy, while another goroutine
// does so, too.
func BenchmarkBusy(b *testing.B) {
	l := NewLimiter(LimiterConfig{})
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		busy := l.busy(ofSpace + "a")
		for pb.Next() {
			busy()
		}
	})
}
