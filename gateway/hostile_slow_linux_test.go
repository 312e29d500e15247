// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/berth-dev/berth/gateway"
)

// S7: headers that come byte by byte end the connection, of strangers and of clients that are known.
func TestHostileHeadersThatComeSlowlyEndTheConnection(t *testing.T) {
	connections := gateway.DefaultConnections()
	connections.HeaderTimeout = 3 * time.Second // also of the handshakes before
	address := serveIdentities(t, connections, nil, ok)
	known := secure(t, address, "http/1.1")
	if code, err := ask(known, "solar", "/api"); err != nil || code != http.StatusOK {
		t.Fatalf("a known client: %d, %v", code, err)
	}
	for reason, conn := range map[string]net.Conn{"a stranger": secure(t, address, "http/1.1"), "a known client": known} {
		go func() {
			_, err := io.WriteString(conn, "GET /api HTTP/1.1\r\nHost: berth\r\nAuthorization: Bearer solar\r\nX-Slow: ")
			tick := time.NewTicker(10 * time.Millisecond)
			defer tick.Stop()
			for err == nil {
				<-tick.C
				_, err = io.WriteString(conn, "x")
			}
		}()
		closed(t, reason, conn)
	}
}

// L1, L3: clients of a tenant that send half of a body, or read nothing of a long response, take what is theirs. Others of the same tenant
// are served.
func TestHostileSlowClientsOfATenantTakeNoMoreThanTheirs(t *testing.T) {
	for name, attack := range map[string]func(i int, conn net.Conn) error{
		"half of a body": func(_ int, conn net.Conn) error {
			_, err := fmt.Fprintf(conn, "POST /api/v1/namespaces/default/configmaps HTTP/1.1\r\nHost: berth\r\nAuthorization: Bearer of-eve\r\nContent-Length: 3000000\r\n\r\n%s",
				strings.Repeat("x", 100<<10))
			return err
		},
		"a long response": func(_ int, conn net.Conn) error {
			_, err := io.WriteString(conn, "GET /api/v1/pods?bytes=200000000 HTTP/1.1\r\nHost: berth\r\nAuthorization: Bearer of-eve\r\n\r\n")
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			a := startAttacked(t)
			a.serveVictim(t)
			var group sync.WaitGroup
			for i := range 600 { // more than a space may have
				group.Go(func() {
					conn, err := a.connect(fmt.Sprintf("127.0.0.%d", 2+i%5), "http/1.1")
					if err == nil {
						t.Cleanup(func() { _ = conn.Close() })
						err = attack(i, conn)
					}
					if err != nil {
						t.Errorf("connection %d: %v", i, err)
					}
				})
			}
			group.Wait()
			var served bool
			for _, token := range []string{"of-mallory", "of-trent", "of-peggy"} { // of many users, some count as one
				other, err := a.connect("127.0.0.9", "http/1.1")
				if err != nil {
					t.Fatal(err)
				}
				code, err := ask(other, token, "/api/v1/namespaces/default/pods/x")
				t.Logf("another user of the tenant gets %d, %v", code, err)
				served = served || err == nil && code == http.StatusOK
				_ = other.Close()
			}
			if !served {
				t.Error("no other user of the tenant is served")
			}
			a.survives(t, 256<<20)
		})
	}
	t.Run("responses by HTTP/2", func(t *testing.T) {
		a := startAttacked(t)
		a.serveVictim(t)
		a.flood(t, 20, 100, nil, func(f *frames, _ int) error {
			_, err := f.request(true, f.header(http.MethodGet, "/api/v1/pods?bytes=200000000", "of-eve"))
			return err
		})
		a.survives(t, 256<<20)
	})
}
