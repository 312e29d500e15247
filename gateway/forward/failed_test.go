// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package forward_test

import (
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"golang.org/x/net/http2"

	"github.com/berth-dev/berth/gateway/forward"
)

// D5: clients repeat what is answered with 503 and Retry-After, whatever its method. What the other shard may have done must not be done
// twice.
func TestARequestThatMayHaveRunIsNotRepeated(t *testing.T) {
	s := newShards(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		panic(http.ErrAbortHandler) // as a shard that dies when it has written
	}))
	for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete} {
		if status, err := send(t, s, method, ""); err == nil {
			t.Errorf("%s: the client got %d", method, status)
		}
	}
	if status, err := send(t, s, http.MethodGet, "echo"); err == nil {
		t.Errorf("an upgrade: the client got %d", status)
	}
	if status, err := send(t, s, http.MethodGet, ""); err != nil || status != http.StatusServiceUnavailable {
		t.Errorf("a GET: the client got %d, %v", status, err)
	}
}

// What the other shard has certainly not done is answered so that clients repeat it.
func TestARequestThatWasRefusedIsRepeated(t *testing.T) {
	s := newShards(t, http.NotFoundHandler())
	s.address = refusing(t, s)
	if status, err := send(t, s, http.MethodPut, ""); err != nil || status != http.StatusServiceUnavailable {
		t.Errorf("a stream was refused: the client got %d, %v", status, err)
	}
}

func send(t *testing.T, s *shards, method, upgrade string) (status int, err error) {
	t.Helper()
	var body io.Reader = http.NoBody
	if method != http.MethodGet && method != http.MethodDelete {
		body = strings.NewReader("an object")
	}
	request, err := http.NewRequestWithContext(t.Context(), method, s.front.URL, body)
	if err != nil {
		t.Fatal(err)
	}
	if upgrade != "" {
		request.Header.Set("Connection", "Upgrade")
		request.Header.Set("Upgrade", upgrade)
	}
	response, err := s.front.Client().Do(request)
	if err != nil {
		return 0, err
	}
	return response.StatusCode, response.Body.Close()
}

// refusing serves shards, and refuses each stream.
func refusing(t *testing.T, s *shards) (address string) {
	t.Helper()
	config, err := forward.ServerTLS(s.ca, "berth-1")
	if err != nil {
		t.Fatal(err)
	}
	config.NextProtos = []string{"h2"}
	listener, err := tls.Listen("tcp", "127.0.0.1:0", config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go refuseStreams(conn)
		}
	}()
	return listener.Addr().String()
}

func refuseStreams(conn net.Conn) {
	defer conn.Close()
	if _, err := io.CopyN(io.Discard, conn, int64(len(http2.ClientPreface))); err != nil {
		return
	}
	framer := http2.NewFramer(conn, conn)
	_ = framer.WriteSettings()
	for {
		frame, err := framer.ReadFrame()
		if err != nil {
			return
		}
		if headers, ok := frame.(*http2.HeadersFrame); ok {
			_ = framer.WriteRSTStream(headers.StreamID, http2.ErrCodeRefusedStream)
		}
	}
}
