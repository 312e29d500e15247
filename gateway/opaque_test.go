// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway_test

import (
	"bufio"
	"crypto/tls"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"strings"
	"testing"
	"time"

	"github.com/berth-dev/berth/bounds"
	"github.com/berth-dev/berth/gateway"
)

// L1, S5: what a proxy to a dedicated space's process sends on is what the gateway has classified. A request target without a slash is a
// URL with an opaque part, whose path is empty.
func TestHostileOpaqueTargetsEvadeNoLimit(t *testing.T) {
	var served []string
	process := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { served = append(served, r.URL.Path+" "+r.URL.RawQuery) }))
	defer process.Close()
	proxy := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { // as shard/dedicated does
		r.Out.URL.Scheme, r.Out.URL.Host = "http", process.Listener.Addr().String()
	}}
	s, address, _ := serve(t, &gateway.Router{
		Lookup: func(string) http.Handler { return proxy }, Own: func(*http.Request) string { return "a" },
		Limiter: gateway.NewLimiter(gateway.LimiterConfig{Limits: func(string) bounds.Limits { return bounds.Limits{bounds.RequestsLongRunning: 1} }}),
	})
	defer s.Stop(t.Context())
	for _, target := range []string{"x:y:/api/v1/pods?watch=true", "x:y:/api/v1/namespaces/n/pods/p/exec"} {
		conn, err := tls.Dial("tcp", address[len("https://"):], &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}})
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
		_, _ = io.WriteString(conn, "GET "+target+" HTTP/1.1\r\nHost: berth\r\n\r\n")
		if resp, err := http.ReadResponse(bufio.NewReader(conn), nil); err == nil {
			t.Logf("%s: %s", target, resp.Status)
			_ = resp.Body.Close()
		}
		_ = conn.Close()
	}
	for _, path := range served {
		if strings.HasPrefix(path, "/ ") {
			continue // an empty path is the root
		}
		t.Errorf("the process serves %q, which the gateway has classified by an empty path", path)
	}
}
