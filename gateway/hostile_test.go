// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway_test

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/berth-dev/berth/gateway"
)

const testTimeout = 30 * time.Second

func ok(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") }

// dialFrom connects from a loopback address of the caller's choice.
func dialFrom(t *testing.T, from, to string) net.Conn {
	t.Helper()
	host, _, _ := strings.Cut(strings.TrimPrefix(to, "https://"), "/")
	c, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}).DialContext(t.Context(), "tcp", host)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if err := c.SetDeadline(time.Now().Add(testTimeout)); err != nil {
		t.Fatal(err)
	}
	return c
}

// get asks by a connection of its own from an address.
func get(t *testing.T, from, to string, header http.Header) (*http.Response, error) {
	t.Helper()
	conn := tls.Client(dialFrom(t, from, to), &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}})
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, to, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header, req.Close = header, true
	if err := req.Write(conn); err != nil {
		return nil, err
	}
	return http.ReadResponse(bufio.NewReader(conn), req)
}

// ask sends a request by HTTP/1.1 on a connection, and reads the response.
func ask(conn net.Conn, token, path string) (code int, err error) {
	_, err = fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: berth\r\nAuthorization: Bearer %s\r\n\r\n", path, token)
	if err != nil {
		return 0, err
	}
	resp, err := readResponse(conn)
	if err != nil {
		return 0, err
	}
	_, err = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode, errors.Join(err, resp.Body.Close())
}

func readResponse(conn net.Conn) (*http.Response, error) {
	return http.ReadResponse(bufio.NewReader(conn), nil)
}

// closed fails unless the other side ends the connection.
func closed(t *testing.T, what string, c net.Conn) {
	t.Helper()
	if _, err := io.Copy(io.Discard, c); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("%s: the connection stays open", what)
	}
}

// S7, L3: a client that takes all the connections it can leaves others theirs, and has place for a further one: by the oldest.
func TestHostileConnectionsOfOneClientLeaveOthersTheirs(t *testing.T) {
	bounds := gateway.Connections{Total: 100, PerClient: 5, HeaderTimeout: time.Hour}
	s, address, _ := serveBounded(t, bounds, http.HandlerFunc(ok))
	defer s.Stop(t.Context())
	oldest := dialFrom(t, "127.0.0.1", address)
	for range bounds.PerClient - 1 {
		dialFrom(t, "127.0.0.1", address)
	}
	for _, from := range []string{"127.0.0.2", "127.0.0.1"} {
		resp, err := get(t, from, address, nil)
		if err != nil {
			t.Fatalf("from %s: %v", from, err)
		}
		_ = resp.Body.Close()
	}
	closed(t, "the oldest", oldest)
}

// S7, L3: all clients together have no more connections than the process can hold. A further one gets the place of the client that has
// most.
func TestHostileConnectionsOfAllClientsAreBounded(t *testing.T) {
	bounds := gateway.Connections{Total: 4, PerClient: 4, HeaderTimeout: time.Hour}
	s, address, _ := serveBounded(t, bounds, http.HandlerFunc(ok))
	defer s.Stop(t.Context())
	few := tls.Client(dialFrom(t, "127.0.0.2", address), &tls.Config{InsecureSkipVerify: true})
	if err := few.Handshake(); err != nil {
		t.Fatal(err)
	}
	first := dialFrom(t, "127.0.0.3", address)
	for range 2 {
		dialFrom(t, "127.0.0.3", address)
	}
	resp, err := get(t, "127.0.0.9", address, nil)
	if err != nil {
		t.Fatalf("a further client: %v", err)
	}
	_ = resp.Body.Close()
	closed(t, "the oldest of the client that has most", first)
	if code, err := ask(few, "", "/"); err != nil || code != http.StatusOK {
		t.Errorf("a client that has few: %d, %v", code, err)
	}
}

// S7: who says nothing, or half of something, is left.
func TestHostileSilenceEndsTheConnection(t *testing.T) {
	bounds := gateway.DefaultConnections()
	bounds.HeaderTimeout = 200 * time.Millisecond
	s, address, _ := serveBounded(t, bounds, http.HandlerFunc(ok))
	defer s.Stop(t.Context())
	closed(t, "without a handshake", dialFrom(t, "127.0.0.1", address))
	half := tls.Client(dialFrom(t, "127.0.0.1", address), &tls.Config{InsecureSkipVerify: true})
	if err := half.Handshake(); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(half, "GET / HTTP/1.1\r\nHost: x\r\nX-Slow: "); err != nil {
		t.Fatal(err)
	}
	closed(t, "half of the headers", half)
}

// S7: 64 KiB of headers are enough for anybody, and more are not kept.
func TestHostileHeadersAreBounded(t *testing.T) {
	s, address, client := serve(t, http.HandlerFunc(ok))
	defer s.Stop(t.Context())
	token := func(n int) http.Header { return http.Header{"Authorization": {"Bearer " + strings.Repeat("a", n)}} }
	for length, want := range map[int]int{16 << 10: http.StatusOK, 200 << 10: http.StatusRequestHeaderFieldsTooLarge} {
		resp, err := get(t, "127.0.0.1", address, token(length))
		if err != nil {
			t.Fatal(err)
		}
		if resp.StatusCode != want {
			t.Errorf("HTTP/1.1, a token of %d bytes: %s, want %d", length, resp.Status, want)
		}
		_ = resp.Body.Close()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header = token(length)
		resp, err = client("").Do(req)
		if good := err == nil && resp.StatusCode == http.StatusOK; good != (want == http.StatusOK) {
			t.Errorf("HTTP/2, a token of %d bytes: %v", length, err)
		}
		if err == nil {
			_ = resp.Body.Close()
		}
	}
}

// strangers is a gateway to which nobody has a credential.
func strangers(t *testing.T) (address string) {
	router := router()
	router.Verify = func(_ string, r *http.Request) (*http.Request, bool, error) { return r, false, nil }
	s, address, _ := serve(t, router)
	t.Cleanup(func() { s.Stop(t.Context()) })
	return address
}

// S7: a stranger that sends no body, or reads no answer, holds nothing for long.
func TestHostileStrangersHoldNothing(t *testing.T) {
	t.Parallel()
	address := strangers(t)
	t.Run("a body that never comes", func(t *testing.T) {
		t.Parallel()
		c := tls.Client(dialFrom(t, "127.0.0.1", address), &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}})
		if _, err := io.WriteString(c, "POST /spaces/a/api/v1/pods HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		closed(t, "without a body", c)
	})
	t.Run("answers that are never read", func(t *testing.T) {
		t.Parallel()
		// No byte of an answer may be sent.
		c := getHTTP2(t, address, "/spaces/a/api", http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
		closed(t, "with an answer that is not read", c)
	})
}

// getHTTP2 asks, without more than that, by a connection of its own.
func getHTTP2(t *testing.T, address, path string, settings ...http2.Setting) net.Conn {
	t.Helper()
	c := tls.Client(dialFrom(t, "127.0.0.1", address), &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}})
	if _, err := io.WriteString(c, http2.ClientPreface); err != nil {
		t.Fatal(err)
	}
	framer := http2.NewFramer(c, c)
	if err := framer.WriteSettings(settings...); err != nil {
		t.Fatal(err)
	}
	var block bytes.Buffer
	encoder := hpack.NewEncoder(&block)
	for _, f := range [][2]string{{":method", "GET"}, {":scheme", "https"}, {":authority", "x"}, {":path", path}} {
		if err := encoder.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]}); err != nil {
			t.Fatal(err)
		}
	}
	if err := framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block.Bytes(), EndStream: true, EndHeaders: true}); err != nil {
		t.Fatal(err)
	}
	return c
}

// L3: nobody needs a credential for an answer that is no space's, and no limit holds for it. A flood of such requests needs as
// many connections, which take turns with their handshakes.
func TestHostileRequestsToNoSpaceEndTheConnection(t *testing.T) {
	t.Parallel()
	address := strangers(t)
	for _, path := range []string{"/livez", "/readyz", "/", "/api", "/spaces/", "/spaces/nobody/api", "/api/v1/tenants/nobody/pods", "/api/v1/tenants/a/tenants/b/pods"} {
		t.Run(path, func(t *testing.T) {
			t.Parallel()
			c := tls.Client(dialFrom(t, "127.0.0.1", address), &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}})
			if _, err := io.WriteString(c, "POST "+path+" HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n"); err != nil {
				t.Fatal(err)
			}
			closed(t, "HTTP/1.1, without a body", c)
			closed(t, "HTTP/2", getHTTP2(t, address, path))
		})
	}
}

// S19: without a credential, a space that exists is told from none by nothing.
func TestHostileStrangersLearnNoNames(t *testing.T) {
	address := strangers(t)
	var want string
	for _, path := range []string{
		"spaces/nobody/api", "spaces/a/api", "spaces/a/version", "spaces/a/healthz", "spaces/a/readyz", "spaces/a", "spaces/a--b/livez", "spaces/..", "spaces/A/api",
		"spaces/system/api", "api/v1/tenants/nobody/pods", "api/v1/tenants/a/pods", "api/v1/tenants/a--b/pods", "apis/apps/v1/tenants/system/deployments",
	} {
		resp, err := get(t, "127.0.0.1", address+"/"+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp.Header.Del("Date")
		var got strings.Builder
		if err := resp.Write(&got); err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if want == "" {
			if want = got.String(); resp.StatusCode != http.StatusUnauthorized {
				t.Fatalf("%s: %s", path, want)
			}
		}
		if got.String() != want {
			t.Errorf("%s: %s\nwant %s", path, got.String(), want)
		}
	}
}
