// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway_test

import (
	"bytes"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/net/http2"
)

// open makes n connections, from as many addresses as it is told, by TLS if there is a protocol, and has use use each. It returns how many
// use didn't fail with. They stay open until the test ends.
func (a *attacked) open(t *testing.T, n, addresses int, protocol string, use func(net.Conn) error) (opened int) {
	t.Helper()
	var mu sync.Mutex
	var next atomic.Int64
	var workers sync.WaitGroup
	var all []net.Conn
	for range 16 {
		workers.Go(func() {
			for i := next.Add(1); i <= int64(n); i = next.Add(1) {
				from := fmt.Sprintf("127.0.0.%d", 2+i%int64(addresses))
				var conn net.Conn
				var err error
				if protocol == "" {
					conn, err = (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}, Timeout: testTimeout}).Dial("tcp", a.address)
				} else {
					conn, err = a.connect(from, protocol)
				}
				if err != nil { // it may have lost its place to the next ones
					continue
				}
				err = use(conn)
				mu.Lock()
				all = append(all, conn)
				if err == nil {
					opened++
				}
				mu.Unlock()
			}
		})
	}
	workers.Wait()
	t.Cleanup(func() {
		for _, c := range all {
			_ = c.Close()
		}
	})
	return opened
}

// asking sends a request with a token by HTTP/1.1, and reads the response.
func asking(token string) func(net.Conn) error {
	return func(c net.Conn) error {
		code, err := ask(c, token, "/api/v1/pods")
		if err == nil && code != http.StatusOK {
			err = fmt.Errorf("the code is %d", code)
		}
		return err
	}
}

// watching opens a watch by HTTP/2.
func watching(c net.Conn) (*frames, error) {
	f, err := newFrames(c)
	if err != nil {
		return nil, err
	}
	stream, err := f.request(true, f.header(http.MethodGet, watchPath, "of-eve"))
	if err == nil {
		_, err = f.await(stream)
	}
	return f, err
}

// costly has a connection hold what it can: a watch, the bodies of two more, which nobody reads, and most of a header.
func costly(c net.Conn) error {
	f, err := watching(c)
	for range 2 {
		if err != nil {
			return err
		}
		var stream uint32
		if stream, err = f.request(false, f.header(http.MethodGet, watchPath, "of-eve")); err != nil {
			return err
		}
		for range 4 {
			_ = f.WriteData(stream, false, make([]byte, 16<<10-256))
		}
	}
	block := bytes.Clone(f.header(http.MethodGet, "/api", "of-eve", "x: "+strings.Repeat("x", 50<<10)))
	_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: 7, BlockFragment: block[:16<<10]})
	_ = f.WriteContinuation(7, false, block[16<<10:32<<10])
	return f.WriteContinuation(7, false, block[32<<10:48<<10])
}

// S7, L3: 10,000 connections, from more addresses than it takes to have all of the process's: of clients of one tenant, of clients that
// say nothing, and of such that hold as much as they can.
func TestHostileConnectionsOfOneTenantLeaveOthersTheirs(t *testing.T) {
	for name, c := range map[string]struct {
		n        int
		protocol string
		use      func(net.Conn) error
		most     int // bytes of the process
	}{
		"idle":              {10_000, "http/1.1", asking("of-eve"), 384 << 20},
		"silent":            {10_000, "", func(net.Conn) error { return nil }, 384 << 20},
		"idle after TLS":    {2000, "h2", func(net.Conn) error { return nil }, 384 << 20},
		"costly and in use": {2000, "h2", costly, 768 << 20},
		"in use":            {2000, "h2", func(c net.Conn) error { _, err := watching(c); return err }, 384 << 20},
	} {
		t.Run(name, func(t *testing.T) {
			a := startAttacked(t)
			a.serveVictim(t)
			opened := a.open(t, c.n, 10, c.protocol, c.use)
			t.Logf("%d of %d connections were opened", opened, c.n)
			if opened < 500 {
				t.Error("too few to attack")
			}
			a.survives(t, c.most)
		})
	}
}

// A connection costs about what the documentation says, so that all of them have their place in a process.
func TestConnectionsCostWhatIsDocumented(t *testing.T) {
	const n = 500
	for name, c := range map[string]struct {
		protocol string
		use      func(net.Conn) error
		most     int // bytes of a connection
	}{
		"idle, HTTP/1.1": {"http/1.1", asking("of-eve"), 100 << 10},
		"idle, HTTP/2":   {"h2", func(c net.Conn) error { f, err := newFrames(c); _ = f; return err }, 100 << 10},
		"a watch":        {"h2", func(c net.Conn) error { _, err := watching(c); return err }, 150 << 10},
		"all it can":     {"h2", costly, 700 << 10},
	} {
		t.Run(name, func(t *testing.T) {
			a := startAttacked(t)
			before, _ := a.memory(t)
			opened := a.open(t, n, 4, c.protocol, c.use)
			now, _ := a.memory(t)
			each := (now - before) / n
			t.Logf("%d of %d connections take %d KiB each", opened, n, each>>10)
			if opened < n || each > c.most {
				t.Errorf("%d of %d connections take %d KiB each, want at most %d", opened, n, each>>10, c.most>>10)
			}
		})
	}
}
