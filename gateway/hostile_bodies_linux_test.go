// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httputil"
	"os"
	"strings"
	"sync"
	"testing"
)

// gibibyte is a body that no API server takes.
const gibibyte = 1 << 30

// upload sends a request with a body of a gibibyte by HTTP/1.1, until the server closes the connection. It returns the status code of the
// response, 0 if there was none, and how much of the body could be sent.
func (a *attacked) upload(from, token, method, path string, chunked bool) (code int, sent int64, err error) {
	conn, err := a.connect(from, "http/1.1")
	if err != nil {
		return 0, 0, err
	}
	defer conn.Close()
	length := fmt.Sprintf("Content-Length: %d", gibibyte)
	var body io.Writer = conn
	if chunked {
		length, body = "Transfer-Encoding: chunked", httputil.NewChunkedWriter(conn)
	}
	authorization := ""
	if token != "" {
		authorization = "Authorization: Bearer " + token + "\r\n"
	}
	if _, err := fmt.Fprintf(conn, "%s %s HTTP/1.1\r\nHost: berth\r\n%sContent-Type: application/json\r\n%s\r\n\r\n", method, path, authorization, length); err != nil {
		return 0, 0, err
	}
	answered := make(chan int, 1)
	go func() {
		code := 0
		if resp, err := http.ReadResponse(bufio.NewReader(conn), nil); err == nil {
			code = resp.StatusCode
			_ = resp.Body.Close()
		}
		answered <- code
	}()
	sent, sendErr := io.CopyN(body, spaces{}, gibibyte)
	if sendErr == nil {
		return <-answered, sent, nil
	}
	if errors.Is(sendErr, os.ErrDeadlineExceeded) {
		return 0, sent, fmt.Errorf("the connection stays open: %w", sendErr)
	}
	return <-answered, sent, nil
}

// S7, L3: bodies of a gibibyte, of clients that are known and of those that are not, many at once. Little of them is read, and the
// connection is closed.
func TestHostileBodiesOfAGibibyteAreNotRead(t *testing.T) {
	a := startAttacked(t)
	a.serveVictim(t)
	const most = 64 << 20 // with what the system buffers on both sides
	for _, c := range []struct {
		reason, token, method, path string
		code                        int
	}{
		{"an object", "of-eve", http.MethodPost, "/api/v1/namespaces/default/configmaps", http.StatusRequestEntityTooLarge},
		{"by a full path", "of-eve", http.MethodPut, "/api/v1/tenants/solar/namespaces/default/configmaps/x", http.StatusRequestEntityTooLarge},
		{"to another tenant", "of-eve", http.MethodPost, "/spaces/lunar/api/v1/namespaces/default/configmaps", http.StatusForbidden},
		{"to no tenant", "of-eve", http.MethodPost, "/api/v1/tenants/nobody/namespaces/default/configmaps", http.StatusForbidden},
		{"without a credential", "", http.MethodPost, "/spaces/solar/api/v1/namespaces/default/configmaps", http.StatusUnauthorized},
		{"with an unknown token", "of-nobody", http.MethodPost, "/api/v1/namespaces/default/configmaps", http.StatusUnauthorized},
		{"to a path of no space", "", http.MethodPost, "/livez", http.StatusOK},
		{"without a credential, by a strange path", "", http.MethodPost, "/spaces/solar/../lunar/api", http.StatusUnauthorized},
	} {
		for _, chunked := range []bool{false, true} {
			code, sent, err := a.upload("127.0.0.2", c.token, c.method, c.path, chunked)
			// A response may be lost when the connection is reset behind it.
			if err != nil || code != c.code && code != 0 || sent > most {
				t.Errorf("%s, chunked %t: %d after %d MiB, %v; want %d", c.reason, chunked, code, sent>>20, err, c.code)
			}
		}
	}
	var group sync.WaitGroup
	for i := range 50 {
		group.Go(func() {
			token := []string{"of-eve", "of-mallory", ""}[i%3]
			code, sent, err := a.upload(fmt.Sprintf("127.0.0.%d", 2+i%5), token, http.MethodPost, "/spaces/solar/api/v1/namespaces/default/configmaps", i%2 == 0)
			if err != nil || code == http.StatusOK || sent > most {
				t.Errorf("of many at once: %d after %d MiB, %v", code, sent>>20, err)
			}
		})
	}
	group.Wait()
	a.survives(t, 256<<20)
}

// L3: a body that nobody reads, such as that of a watch, waits with its client.
func TestHostileBodiesOfWatchesWaitWithTheirClients(t *testing.T) {
	a := startAttacked(t)
	a.serveVictim(t)
	const most = 16 << 20 // of the system's buffers
	var group sync.WaitGroup
	for range 20 {
		for _, protocol := range []string{"http/1.1", "h2"} {
			conn, err := a.connect("127.0.0.2", protocol)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = conn.Close() })
			var begin func() error
			var send func([]byte) error
			if protocol == "h2" {
				f, err := newFrames(conn)
				if err != nil {
					t.Fatal(err)
				}
				var stream uint32
				begin = func() (err error) {
					if stream, err = f.request(false, f.header(http.MethodGet, watchPath, "of-eve", fmt.Sprintf("content-length: %d", gibibyte))); err == nil {
						_, err = f.await(stream)
					}
					return err
				}
				// It is sent within what the server allows, which net/http's default is for a stream and a connection.
				left := 64<<10 - 1
				send = func(p []byte) error {
					if left < len(p) {
						return io.ErrShortWrite
					}
					left -= len(p)
					return f.WriteData(stream, false, p)
				}
			} else {
				begin = func() error {
					_, err := fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: berth\r\nAuthorization: Bearer of-eve\r\nContent-Length: %d\r\n\r\n", watchPath, gibibyte)
					if err == nil {
						_, err = conn.Read(make([]byte, 1))
					}
					return err
				}
				send = func(p []byte) error { _, err := conn.Write(p); return err }
			}
			if err := begin(); err != nil {
				t.Fatal(err)
			}
			group.Go(func() {
				for sent := 0; ; sent += 8 << 10 {
					if sent > most {
						t.Errorf("%s: %d MiB of a body that nobody reads are taken", protocol, sent>>20)
						return
					}
					_ = conn.SetWriteDeadline(soon())
					if err := send([]byte(strings.Repeat("x", 8<<10))); err != nil {
						return
					}
				}
			})
		}
	}
	group.Wait()
	a.survives(t, 256<<20)
}
