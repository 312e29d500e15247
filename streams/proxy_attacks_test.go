// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package streams_test

import (
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/berth-dev/berth/internal/testhost"
)

// S5, X4: what a pod answers is passed on, and not gathered in the memory of the
// process that all spaces share: a page of which upstream would change the links when
// it had the whole of it, packed or not, and the header of an upgrade.
func TestProxiesGatherNothingOfWhatPodsAnswer(t *testing.T) {
	s := theEnv(t).space(t, "gather")
	ended := make(chan string, 10)
	port := serve(t, func(w http.ResponseWriter, r *http.Request) {
		defer func() { ended <- r.URL.Path }()
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		var out io.Writer = w
		switch r.URL.Path {
		case "/odd":
			w.Header().Set("Content-Type", " text/html ;;=")
		case "/packed":
			w.Header().Set("Content-Encoding", "gzip")
			packer, _ := gzip.NewWriterLevel(w, gzip.NoCompression)
			out = packer
		case "/upgrade":
			conn, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\nX-Long: ")
			_, _ = io.Copy(conn, spaces{})
			return
		case "/echo":
			conn, buffered, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			_, _ = fmt.Fprintf(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n%s ", r.URL.Query().Get("name"))
			_, _ = io.CopyN(conn, buffered, 5)
			return
		case "/page":
			if _, err := io.WriteString(out, "<a href=/there>"+strings.Repeat(" ", 200<<10)); err != nil {
				t.Error(err)
			}
			return
		}
		_, _ = io.WriteString(out, "<a href=/there>")
		_, _ = io.Copy(out, spaces{}) // until nobody reads any more
	})
	s.run(t, newPod("web", "app"))
	base := "/api/v1/namespaces/default/pods/web:" + strconv.Itoa(port) + "/proxy"
	for _, path := range []string{"/plain", "/odd", "/packed"} {
		ctx, cancel := context.WithCancel(t.Context())
		resp := s.open(t, ctx, base+path, http.Header{"Accept-Encoding": {"gzip"}})
		if kind := resp.Header.Get("Content-Type"); !strings.HasPrefix(strings.ToLower(strings.TrimSpace(kind)), "text/html") {
			t.Errorf("%s is a %q", path, kind)
		}
		if n, err := io.CopyN(io.Discard, resp.Body, 4<<20); err != nil {
			t.Errorf("of %s, %d bytes came: %v", path, n, err)
		}
		cancel()
		_ = resp.Body.Close()
		testhost.Eventually(t, "leave "+path, func(context.Context) error {
			if got := <-ended; got != path {
				return fmt.Errorf("the pod was left by who asked for %s", got)
			}
			return nil
		})
	}
	if resp, body := s.ask(t, http.MethodGet, base+"/page", http.Header{"Accept": {"text/html"}}); !strings.Contains(body, base+"/there") {
		t.Errorf("a page that is not long is %.200s (%v)", body, resp.Header)
	}

	header := http.Header{"Connection": {"Upgrade"}, "Upgrade": {"echo"}}
	resp := s.open(t, t.Context(), base+"/upgrade", header)
	if resp.StatusCode < http.StatusInternalServerError {
		t.Errorf("an upgrade without end is answered by %d", resp.StatusCode)
	}
	_ = resp.Body.Close()
	resp = s.open(t, t.Context(), base+"/echo?name=you", header)
	conn, ok := resp.Body.(io.ReadWriteCloser)
	if resp.StatusCode != http.StatusSwitchingProtocols || !ok {
		t.Fatalf("an upgrade is answered by %d", resp.StatusCode)
	}
	defer func() { _ = resp.Body.Close() }()
	if _, err := io.WriteString(conn, "hello"); err != nil {
		t.Error(err)
	}
	if said, err := io.ReadAll(conn); err != nil || string(said) != "you hello" {
		t.Errorf("the echo is %q (%v)", said, err)
	}
}
