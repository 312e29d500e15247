// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package testwebhook serves webhooks for tests over HTTPS.
package testwebhook

import (
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
)

// Server is a webhook. It counts the requests that it gets.
type Server struct {
	*httptest.Server
	// Kubeconfig is a file that leads to it.
	Kubeconfig string
	// Asked is how many requests it has got, and Most how many at once.
	Asked, Most atomic.Int64
	now         atomic.Int64
}

// Serve serves a webhook on a loopback address until the test ends.
func Serve(t testing.TB, handler http.HandlerFunc) *Server {
	t.Helper()
	s := &Server{Kubeconfig: filepath.Join(t.TempDir(), "webhook.kubeconfig")}
	s.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.Asked.Add(1)
		now := s.now.Add(1)
		defer s.now.Add(-1)
		for most := s.Most.Load(); now > most && !s.Most.CompareAndSwap(most, now); {
			most = s.Most.Load()
		}
		handler(w, r)
	}))
	t.Cleanup(s.Close)
	Write(t, s.Kubeconfig, s.URL+"/webhook", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}))
	return s
}

// Write writes a kubeconfig that leads to a URL.
func Write(t testing.TB, file, url string, ca []byte) {
	t.Helper()
	text := fmt.Sprintf(`{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: c, user: u}}], users: [{name: u, user: {}}],
  clusters: [{name: c, cluster: {server: %q, certificate-authority-data: %q}}]}`, url, base64.StdEncoding.EncodeToString(ca))
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// Answer answers with an object.
func Answer(w http.ResponseWriter, object any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(object)
}
