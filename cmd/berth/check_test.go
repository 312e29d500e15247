// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berth-dev/berth/vcluster/pki"
)

// X1: a cluster that does not answer is named with the reason, and the others are checked, too.
func TestCheckNamesWhatDoesNotAnswer(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed := "https://" + listener.Addr().String()
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	ca, err := pki.OpenCA(t.TempDir(), "test")
	if err != nil {
		t.Fatal(err)
	}
	pair, err := ca.Client("admin", nil)
	if err != nil {
		t.Fatal(err)
	}
	kubeconfig, err := pki.Kubeconfig("down", closed, ca.PEM(), "admin", pair)
	if err != nil {
		t.Fatal(err)
	}
	down, broken := filepath.Join(t.TempDir(), "down.kubeconfig"), filepath.Join(t.TempDir(), "broken")
	for path, content := range map[string][]byte{down: kubeconfig, broken: []byte("no kubeconfig")} {
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	out, err := run(t, "check", "--timeout", "1s", down, broken)
	if err == nil || err.Error() != "2 of 2 are not ready: down, broken" {
		t.Errorf("got %v, want both named", err)
	}
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if len(lines) != 2 || !strings.HasPrefix(lines[0], "down: not ready: ") || !strings.Contains(lines[0], "connection refused") || !strings.HasPrefix(lines[1], "broken: ") {
		t.Errorf("printed:\n%s", out)
	}
}

// X1: a URL is checked, too, and is ready when it answers with code 200.
func TestCheckAsksURLs(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/readyz" {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	defer server.Close()
	if out, err := run(t, "check", "--timeout", "1s", "--url", server.URL+"/readyz"); err != nil || out != server.URL+"/readyz: ready\n" {
		t.Errorf("printed %q (%v)", out, err)
	}
	out, err := run(t, "check", "--timeout", "1s", "--url", server.URL+"/other")
	if err == nil || !strings.Contains(out, "not ready: 503") {
		t.Errorf("printed %q (%v)", out, err)
	}
	if _, err := run(t, "check"); err == nil || !strings.Contains(err.Error(), "--url") {
		t.Errorf("nothing is ready: %v", err)
	}
}
