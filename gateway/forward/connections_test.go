// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package forward_test

import (
	"bufio"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"k8s.io/klog/v2/ktesting"

	"github.com/berth-dev/berth/gateway"
	"github.com/berth-dev/berth/gateway/forward"
	"github.com/berth-dev/berth/vcluster/pki"
)

// T9: a connection whose requests another shard serves belongs to its tenant once that shard has said so, so that strangers don't end it.
// A stranger's ends though its client neither sends the rest of a request nor closes it.
func TestHostileConnectionsOfOtherShardsCount(t *testing.T) {
	ca, err := pki.OpenCA(t.TempDir(), "berth")
	if err != nil {
		t.Fatal(err)
	}
	logger, _ := ktesting.NewTestContext(t)
	router := &gateway.Router{
		Lookup:  func(string) http.Handler { return http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}) },
		Limiter: gateway.NewLimiter(gateway.LimiterConfig{}),
		Verify: func(_ string, r *http.Request) (*http.Request, bool, error) {
			return r, r.Header.Get("Authorization") != "", nil
		},
	}
	address := serve(t, ca, "berth-1", router, logger)
	forwarder := forward.New(ca, func(string) (string, error) { return address, nil }, logger)
	certificate, err := ca.Serving("berth")
	if err != nil {
		t.Fatal(err)
	}
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	limits := gateway.Connections{Total: 100, PerClient: 4, HeaderTimeout: 10 * time.Second}
	server := gateway.ServeBounded(listener, limits, certificate.Get, forwarder.To("berth-1"), logger)
	t.Cleanup(func() { server.Stop(t.Context()) })

	connect := func() (net.Conn, *bufio.Reader) {
		conn, err := tls.Dial("tcp", listener.Addr().String(), &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}}) //nolint:gosec,noctx // an attacker
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
		return conn, bufio.NewReader(conn)
	}
	ask := func(conn net.Conn, answers *bufio.Reader) (code int, header http.Header) {
		_, _ = io.WriteString(conn, "GET /spaces/solar/version HTTP/1.1\r\nHost: berth\r\nAuthorization: Bearer x\r\n\r\n")
		response, err := http.ReadResponse(answers, nil)
		if err != nil {
			t.Fatalf("a client's connection: %v", err)
		}
		_ = response.Body.Close()
		return response.StatusCode, response.Header
	}
	client, answers := connect()
	_, header := ask(client, answers)
	for name := range header {
		if len(name) > 8 && name[:8] == "X-Berth-" {
			t.Errorf("the client gets %s", name)
		}
	}
	for range 2 * limits.PerClient {
		connect()
	}
	if code, _ := ask(client, answers); code != http.StatusOK {
		t.Errorf("the client got %d", code)
	}

	stranger, answers := connect()
	_, _ = io.WriteString(stranger, "POST /spaces/solar/version HTTP/1.1\r\nHost: berth\r\nContent-Length: 100\r\n\r\n")
	response, err := http.ReadResponse(answers, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusUnauthorized || !response.Close {
		t.Fatalf("the stranger got %s", response.Status)
	}
	if _, err := io.Copy(io.Discard, answers); err != nil {
		t.Errorf("the stranger's connection did not end: %v", err)
	}
}
