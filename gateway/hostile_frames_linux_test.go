// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"golang.org/x/net/http2"
)

const watchPath = "/api/v1/pods?watch=1&resourceVersion=7"

// flood has n connections send frames until one fails, or send has been called times times on each.
func (a *attacked) flood(t *testing.T, n, times int, settings []http2.Setting, send func(f *frames, i int) error) {
	t.Helper()
	var group sync.WaitGroup
	for i := range n {
		group.Go(func() {
			conn, err := a.connect(fmt.Sprintf("127.0.0.%d", 2+i%5), "h2")
			if err != nil {
				t.Logf("connect: %v", err) // the server has too many of the address
				return
			}
			t.Cleanup(func() { _ = conn.Close() })
			f, err := newFrames(conn, settings...)
			for i := 0; i < times && err == nil; i++ {
				err = send(f, i)
			}
		})
	}
	group.Wait()
}

// drain reads what the server sends, so that it isn't what the client does not read that ends the connection.
func (f *frames) drain() { go func() { _, _ = io.Copy(io.Discard, f.Conn) }() }

// L3: frames that cost their sender nothing. Clients with and without a credential send them on many connections.
func TestHostileFramesHoldLittle(t *testing.T) {
	names := make([]string, 10_000) // of trailers: each takes much more memory than its text
	for i := range names {
		names[i] = fmt.Sprintf("t%04d", i)
	}
	for name, c := range map[string]struct {
		connections, times int
		settings           []http2.Setting
		send               func(f *frames, i int) error
	}{
		"continuations of a header without end": {20, 4000, nil, func(f *frames, i int) error {
			if i == 0 {
				return f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: f.header(http.MethodGet, "/api", "of-eve")})
			}
			return f.WriteContinuation(1, false, bytes.Clone(f.header(http.MethodGet, "/api", "", "x-"+fmt.Sprint(i)+": "+strings.Repeat("x", 8<<10))))
		}},
		"empty continuations": {20, 20_000, nil, func(f *frames, i int) error {
			if i == 0 {
				return f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: f.header(http.MethodGet, "/api", "of-eve")})
			}
			return f.WriteContinuation(1, false, nil)
		}},
		"pings that nobody reads the answers of": {20, 50_000, nil, func(f *frames, _ int) error {
			return f.WritePing(false, [8]byte{})
		}},
		"settings that nobody reads the answers of": {20, 50_000, nil, func(f *frames, i int) error {
			return f.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: uint32(i)})
		}},
		"windows of streams": {20, 20_000, nil, func(f *frames, i int) error {
			if i == 0 {
				f.drain()
				_, err := f.request(true, f.header(http.MethodGet, watchPath, "of-eve"))
				return err
			}
			return f.WriteWindowUpdate(1, 1)
		}},
		"priorities": {20, 20_000, nil, func(f *frames, i int) error {
			return f.WritePriority(uint32(2*i+1), http2.PriorityParam{StreamDep: 0, Weight: 1})
		}},
		"resets of requests": {20, 2000, nil, func(f *frames, i int) error {
			if i == 0 {
				f.drain()
			}
			stream, err := f.request(true, f.header(http.MethodGet, "/api/v1/namespaces/default/pods/x?hang", "of-eve"))
			if err == nil {
				err = f.WriteRSTStream(stream, http2.ErrCodeCancel)
			}
			return err
		}},
		"resets of strangers' requests": {20, 2000, nil, func(f *frames, i int) error {
			if i == 0 {
				f.drain()
			}
			stream, err := f.request(true, f.header(http.MethodGet, "/spaces/solar/api", ""))
			if err == nil {
				err = f.WriteRSTStream(stream, http2.ErrCodeCancel)
			}
			return err
		}},
		"empty data": {20, 20_000, nil, func(f *frames, i int) error {
			if i == 0 {
				f.drain()
				_, err := f.request(false, f.header(http.MethodPost, "/api/v1/namespaces/default/configmaps", "of-eve"))
				return err
			}
			return f.WriteData(1, false, nil)
		}},
		"long headers of strangers that read no answer": {200, 100, []http2.Setting{{ID: http2.SettingInitialWindowSize, Val: 0}}, func(f *frames, i int) error {
			_, err := f.request(true, bytes.Clone(f.header(http.MethodGet, "/spaces/solar/api", "", fmt.Sprintf("x-%d: %s", i, strings.Repeat("X", 60<<10)))))
			return err
		}},
		"long headers of a tenant that reads no answer": {200, 100, []http2.Setting{{ID: http2.SettingInitialWindowSize, Val: 0}}, func(f *frames, i int) error {
			_, err := f.request(true, bytes.Clone(f.header(http.MethodGet, "/api/v1/pods", "of-eve", fmt.Sprintf("x-%d: %s", i, strings.Repeat("X", 60<<10)))))
			return err
		}},
		"names of trailers": {50, 100, []http2.Setting{{ID: http2.SettingInitialWindowSize, Val: 0}}, func(f *frames, _ int) error {
			_, err := f.request(true, bytes.Clone(f.header(http.MethodGet, "/api/v1/pods", "of-eve", "trailer: "+strings.Join(names, ","))))
			return err
		}},
		"requests whose answers nobody reads": {300, 100, []http2.Setting{{ID: http2.SettingInitialWindowSize, Val: 0}}, func(f *frames, _ int) error {
			_, err := f.request(true, bytes.Clone(f.header(http.MethodGet, "/api/v1/pods", "of-eve")))
			return err
		}},
		"long headers of watches": {100, 100, nil, func(f *frames, i int) error {
			_, err := f.request(true, bytes.Clone(f.header(http.MethodGet, watchPath, "of-eve", fmt.Sprintf("x-%d: %s", i, strings.Repeat("X", 60<<10)))))
			return err
		}},
	} {
		t.Run(name, func(t *testing.T) {
			a := startAttacked(t)
			a.serveVictim(t)
			a.flood(t, c.connections, c.times, c.settings, c.send)
			a.survives(t, 768<<20)
		})
	}
}
