// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway_test

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/berth-dev/berth/gateway"
)

// S5, U1: exec, attach and port-forward turn their connection into something else
// than HTTP; the gateway must let it go.
func TestUpgradesReachTheSpace(t *testing.T) {
	shout := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, stream, err := w.(http.Hijacker).Hijack()
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		defer conn.Close()
		_, _ = fmt.Fprintf(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\n\r\n", r.Header.Get("Upgrade"))
		line, _ := stream.ReadString('\n')
		_, _ = fmt.Fprintf(conn, "%s heard %s", r.URL.Path, line)
	})
	s, address, _ := serve(t, &gateway.Router{
		Lookup: func(string) http.Handler { return shout }, TenantOf: func(space string) string { return space },
	})
	defer s.Stop(t.Context())
	for _, path := range []string{"/spaces/a/api/v1/namespaces/x/pods/y/exec", "/api/v1/tenants/a/namespaces/x/pods/y/exec"} {
		t.Run(path, func(t *testing.T) { upgrade(t, address, path) })
	}
}

func upgrade(t *testing.T, address, path string) {
	t.Helper()
	conn, err := tls.Dial("tcp", address[len("https://"):], &tls.Config{
		InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}, // whom it talks to is not what is tested
	})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	_, _ = io.WriteString(conn, "GET "+path+" HTTP/1.1\r\nHost: berth\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
	from := bufio.NewReader(conn)
	resp, err := http.ReadResponse(from, nil)
	if err != nil || resp.StatusCode != http.StatusSwitchingProtocols || resp.Header.Get("Upgrade") != "websocket" {
		t.Fatalf("got %v (%v), want an upgrade", resp, err)
	}
	_ = resp.Body.Close()
	_, _ = io.WriteString(conn, "hello\n")
	if got, err := from.ReadString('\n'); err != nil || got != "/api/v1/namespaces/x/pods/y/exec heard hello\n" {
		t.Errorf("got %q (%v)", got, err)
	}
}
