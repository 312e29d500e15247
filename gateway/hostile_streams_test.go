// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway_test

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/berth-dev/berth/bounds"
	"github.com/berth-dev/berth/gateway"
	"github.com/berth-dev/berth/identity"
)

// serveIdentities serves all tenants on TLS, to clients who are known by a token: TENANT.
func serveIdentities(t *testing.T, connections gateway.Connections, limits bounds.Limits, space http.HandlerFunc) (address string) {
	t.Helper()
	own := func(space string) string { return space }
	s, address, _ := serveBounded(t, connections, &gateway.Router{
		Lookup: func(string) http.Handler { return space }, TenantOf: own,
		Identify: func(r *http.Request) (*identity.Identity, error) {
			tenant, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
			if !ok {
				return nil, nil
			}
			return &identity.Identity{Name: "eve", Tenant: tenant, Proof: identity.TokenFile}, nil
		},
		Limiter: gateway.NewLimiter(gateway.LimiterConfig{TenantOf: own, Limits: func(string) bounds.Limits { return limits }}),
	})
	t.Cleanup(func() { s.Stop(t.Context()) })
	return address
}

// secure connects by TLS.
func secure(t *testing.T, address, protocol string) net.Conn {
	t.Helper()
	c := tls.Client(dialFrom(t, "127.0.0.1", address), &tls.Config{InsecureSkipVerify: true, NextProtos: []string{protocol}})
	if err := c.Handshake(); err != nil {
		t.Fatal(err)
	}
	return c
}

// L1: requests that their client resets at once, or whose responses it does not read, count until their handlers have ended, and the
// responses are read.
func TestHostileStreamsCountAsLongAsTheyLast(t *testing.T) {
	const limit = 8 // of which one user has 7
	started, release := make(chan struct{}, limit), make(chan struct{})
	address := serveIdentities(t, gateway.DefaultConnections(), bounds.Limits{bounds.RequestsReading: limit}, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Has("hang") {
			started <- struct{}{}
			<-release
		}
		_, _ = io.WriteString(w, "ok")
	})
	answer := func(tenant string) int {
		code, err := ask(secure(t, address, "http/1.1"), tenant, "/api/v1/namespaces/default/pods/x")
		if err != nil {
			t.Fatal(err)
		}
		return code
	}
	becomes := func(what string, want int) {
		t.Helper()
		for end := time.Now().Add(testTimeout); answer("solar") != want; time.Sleep(10 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("%s: another request never gets %d", what, want)
			}
		}
		if code := answer("lunar"); code != http.StatusOK {
			t.Errorf("%s: another tenant gets %d", what, code)
		}
	}
	reset, err := newFrames(secure(t, address, "h2"))
	if err != nil {
		t.Fatal(err)
	}
	for range limit - 1 {
		stream, err := reset.request(true, reset.header(http.MethodGet, "/api/v1/namespaces/default/pods/x?hang", "solar"))
		if err != nil {
			t.Fatal(err)
		}
		<-started
		if err := reset.WriteRSTStream(stream, http2.ErrCodeCancel); err != nil {
			t.Fatal(err)
		}
	}
	becomes("with handlers that go on after a reset", http.StatusTooManyRequests)
	close(release)
	becomes("after their end", http.StatusOK)

	conn := secure(t, address, "h2")
	silent, err := newFrames(conn, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
	if err != nil {
		t.Fatal(err)
	}
	for range 5 * limit { // of which some may come before the last handler has ended
		if _, err := silent.request(true, silent.header(http.MethodGet, "/api/v1/namespaces/default/pods/x", "solar")); err != nil {
			t.Fatal(err)
		}
		if answer("solar") == http.StatusTooManyRequests {
			break
		}
	}
	becomes("with responses that are not read", http.StatusTooManyRequests)
	_ = conn.Close()
	becomes("without them", http.StatusOK)
}

// L1: a connection beyond what a tenant may have gets an error that says so, while all others have requests under way.
func TestHostileConnectionsThatAreAllInUseAreRefused(t *testing.T) {
	connections := gateway.Connections{Total: 20, PerClient: 8, HeaderTimeout: testTimeout}
	address := serveIdentities(t, connections, nil, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Has("watch") {
			w.WriteHeader(http.StatusOK)
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		}
	})
	watch := func() (conn net.Conn, code int, says string) {
		t.Helper()
		conn = secure(t, address, "http/1.1")
		_, _ = fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: berth\r\nAuthorization: Bearer solar\r\n\r\n", "/api/v1/pods?watch=true&resourceVersion=7")
		resp, err := readResponse(conn)
		if err != nil {
			t.Fatal(err)
		}
		if resp.StatusCode != http.StatusOK { // the body of a watch does not end
			body, _ := io.ReadAll(resp.Body)
			_ = resp.Body.Close()
			says = string(body)
		}
		return conn, resp.StatusCode, says
	}
	var last net.Conn
	for range 7 { // what one user may have
		conn, code, says := watch()
		if code != http.StatusOK {
			t.Fatalf("within the limit: %d, %s", code, says)
		}
		last = conn
	}
	refused, code, says := watch()
	if code != http.StatusTooManyRequests || !strings.Contains(says, "as many connections as it may have at once") {
		t.Errorf("beyond the limit: %d, %s", code, says)
	}
	closed(t, "the connection that is refused", refused)
	if code, err := ask(secure(t, address, "http/1.1"), "lunar", "/api"); err != nil || code != http.StatusOK {
		t.Errorf("another tenant: %d, %v", code, err)
	}
	_ = last.Close()
	for end := time.Now().Add(testTimeout); ; time.Sleep(10 * time.Millisecond) {
		if code, err := ask(secure(t, address, "http/1.1"), "solar", "/api"); err == nil && code == http.StatusOK {
			return
		}
		if time.Now().After(end) {
			t.Fatal("a connection that has ended still counts")
		}
	}
}

// L3: a header of many short fields takes many times the memory of its characters. It is refused, and the connection ends.
func TestHostileHeadersOfManyFieldsAreRefused(t *testing.T) {
	address := serveIdentities(t, gateway.DefaultConnections(), nil, ok)
	for fields, want := range map[int]int{150: http.StatusOK, 201: http.StatusRequestHeaderFieldsTooLarge} {
		conn := secure(t, address, "http/1.1")
		_, _ = fmt.Fprintf(conn, "GET /api HTTP/1.1\r\nHost: berth\r\nAuthorization: Bearer solar\r\n%s\r\n", strings.Repeat("X-Short:\r\n", fields))
		resp, err := readResponse(conn)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("with %d fields and more: %d, want %d: %s", fields, resp.StatusCode, want, body)
		}
		if want != http.StatusOK {
			if !strings.Contains(string(body), "may have 200; send fewer") {
				t.Errorf("it says %s", body)
			}
			closed(t, "after too many fields", conn)
		}
	}
}
