// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package dedicated_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"k8s.io/klog/v2"

	"github.com/berth-dev/berth/shard/dedicated"
)

// O9: a stream of a process ends with the context of its request, on both sides, whatever the process does.
func TestAStreamEndsWithItsRequest(t *testing.T) {
	left := make(chan struct{})
	p := dedicated.NewRemote("mine", "", dedicated.Answering(func(w io.Writer) {
		defer close(left)
		_, err := io.WriteString(w, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: test\r\n\r\n")
		for err == nil {
			_, err = io.WriteString(w, "more")
		}
	}), nil, nil, klog.Background())
	refused, refuse := context.WithCancel(t.Context())
	defer refuse()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.Handler().ServeHTTP(w, r.WithContext(refused))
	}))
	defer server.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Connection", "Upgrade")
	r.Header.Set("Upgrade", "test")
	resp, err := server.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if _, err := io.ReadFull(resp.Body, make([]byte, 1<<10)); resp.StatusCode != http.StatusSwitchingProtocols || err != nil {
		t.Fatalf("the stream does not begin: %s, %v", resp.Status, err)
	}
	refuse()
	_, err = io.Copy(io.Discard, resp.Body)
	if ctx.Err() != nil {
		t.Fatalf("the client's stream lasts: %v", err)
	}
	select {
	case <-left:
	case <-ctx.Done():
		t.Error("the stream of the process lasts")
	}
}
