// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"
	"time"

	"github.com/go-logr/logr"
)

// T9: strangers at the port of the shards have few places, and don't take those of shards.
func TestHostileStrangersKeepNoShardOut(t *testing.T) {
	certified := httptest.NewTLSServer(http.NotFoundHandler()) // for its certificate
	defer certified.Close()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	limits := Connections{Total: 4, PerClient: 100, HeaderTimeout: time.Minute}
	server := serveTrusted(listener, limits, certified.TLS.Clone(), http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), logr.Discard())
	defer server.Stop(t.Context())
	dials := 0
	client := certified.Client()
	client.Transport.(*http.Transport).DialContext = nil
	client.Transport.(*http.Transport).Dial = func(network, address string) (net.Conn, error) { //nolint:staticcheck // the test ends before it could hang
		dials++
		return net.Dial(network, address) //nolint:noctx // the same
	}
	ask := func() {
		response, err := client.Get("https://" + listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
	}
	ask()
	var strangers []net.Conn
	for range 12 {
		conn, err := net.Dial("tcp", listener.Addr().String()) //nolint:noctx // the same
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		strangers = append(strangers, conn)
	}
	deadline := time.Now().Add(20 * time.Second)
	for i, conn := range strangers[:9] { // three places are left of four
		_ = conn.SetReadDeadline(deadline)
		if _, err := conn.Read(make([]byte, 1)); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("the connection %d of strangers stays: %v", i, err)
		}
	}
	ask()
	if dials != 1 {
		t.Errorf("the shard had to connect %d times", dials)
	}
}
