// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package podstream

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/gorilla/websocket"
	"github.com/moby/spdystream/spdy"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"
)

// lastWords is a host that says something, and is gone.
type lastWords struct {
	io.Reader
	done chan struct{}
	end  func()
}

func newLastWords(said []byte) *lastWords {
	l := &lastWords{Reader: strings.NewReader(string(said)), done: make(chan struct{})}
	l.end = sync.OnceFunc(func() { close(l.done) })
	return l
}

func (l *lastWords) Write(p []byte) (int, error) { return len(p), nil }
func (l *lastWords) Close() error                { l.end(); return nil }
func (l *lastWords) Done() <-chan struct{}       { return l.done }

// dataFrame is what a host says on a stream.
func dataFrame(id spdy.StreamId, last bool, text string) []byte {
	b := make([]byte, headSize, headSize+len(text))
	putDataHead(b, id, last, len(text))
	return append(b, text...)
}

// S5, N1: a host that fails in the middle of a stream, and what it says then.
func TestAHostThatFailsInTheMiddleIsNotASuccess(t *testing.T) {
	const stdout, failed = 3, 7 // as channels are numbered
	said := dataFrame(stdout, false, "some of it")
	for name, tc := range map[string]struct {
		said []byte
		want string
	}{
		"Gone":         {said, "the connection to the container has ended"},
		"CutInHead":    {append(said[:len(said):len(said)], 0x80, 3, 0), "the connection to the container has ended"},
		"CutInData":    {append(said[:len(said):len(said)], "\x00\x00\x00\x03\x00\x00\xff\xffabc"...), "the connection to the container has ended"},
		"Text":         {append(said[:len(said):len(said)], dataFrame(failed, false, "dial "+secret+": no route")...), "dial the node: no route"},
		"TextInPieces": {append(append(said[:len(said):len(said)], dataFrame(failed, false, "dial "+secret[:5])...), dataFrame(failed, true, secret[5:]+": no route")...), "dial the node: no route"},
		"Status":       {append(said[:len(said):len(said)], dataFrame(failed, true, `{"status":"Failure","message":"on `+secret+`","details":{"name":"`+secret+`","causes":[{"message":"`+secret+`"}]}}`)...), "on the node"},
		"Garbage":      {append(said[:len(said):len(said)], "\x80\x03\x00\x63\x7f\xff\xff\xff"...), "the connection to the container has ended"},
		"NoStatus":     {append(said[:len(said):len(said)], dataFrame(failed, true, `{"kind":"Secret","x":"`+secret+`"}`)...), "the node"},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				call, err := New(r, Options{Stdout: true, Said: func(m string) string { return strings.ReplaceAll(m, secret, "the node") }})
				if err != nil {
					t.Error(err)
					return
				}
				call.Serve(w, r, newLastWords(tc.said))
			}))
			defer server.Close()
			e, err := remotecommand.NewWebSocketExecutor(&rest.Config{}, http.MethodGet, server.URL+"/?command=x&stdout=true")
			if err != nil {
				t.Fatal(err)
			}
			var out strings.Builder
			err = e.StreamWithContext(t.Context(), remotecommand.StreamOptions{Stdout: &out})
			if err == nil || !strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), secret[:6]) || !strings.HasPrefix(out.String(), "some of it") {
				t.Errorf("client reads %q and is told %v, want %q", out.String(), err, tc.want)
			}
			for _, protocol := range []string{"v4.channel.k8s.io", "channel.k8s.io"} {
				conn, resp, err := (&websocket.Dialer{Subprotocols: []string{protocol}}).DialContext(t.Context(), "ws"+strings.TrimPrefix(server.URL, "http"), nil)
				if err != nil {
					t.Fatal(err)
				}
				var all strings.Builder
				for err == nil {
					var message []byte
					_, message, err = conn.ReadMessage()
					all.Write(message)
				}
				if got := all.String(); strings.Contains(got, secret[:6]) || !strings.Contains(got, tc.want) {
					t.Errorf("client of %s reads %q, want %q", protocol, got, tc.want)
				}
				_, _ = resp.Body.Close(), conn.Close()
			}
		})
	}
}

// N1: a host that talks without an end of a failure takes a bounded part.
func TestWhatIsSaidOfAFailureIsBounded(t *testing.T) {
	b := &heard{}
	h := newHost(newLastWords([]byte(strings.Repeat(string(dataFrame(1, false, strings.Repeat("x", 60_000))), 5))))
	s := &stream{id: 1, kind: corev1.StreamTypeError, port: 1}
	h.open(s, "")
	h.run(b)
	if len(s.said) != maxSaid || b.failure == nil {
		t.Errorf("%d bytes are kept, %v", len(s.said), b.failure)
	}
}

// S5: what a client may ask for is told before the host is asked.
func TestCallsThatCannotBeServedAreRefused(t *testing.T) {
	for name, tc := range map[string]struct {
		header  http.Header
		forward bool
		ports   []uint16
		want    string // in the error; none if empty
	}{
		"NoUpgrade":      {http.Header{}, false, nil, "upgrade request required"},
		"OtherUpgrade":   {http.Header{"Connection": {"Upgrade"}, "Upgrade": {"h2c"}}, false, nil, "upgrade to SPDY/3.1 or websocket required"},
		"TwoUpgrades":    {http.Header{"Connection": {"Upgrade"}, "Upgrade": {"websocket", "SPDY/3.1"}}, false, nil, "upgrade request required"},
		"NoProtocol":     {http.Header{"Connection": {"Upgrade"}, "Upgrade": {"SPDY/3.1"}}, false, nil, "unable to negotiate protocol"},
		"OtherProtocol":  {http.Header{"Connection": {"Upgrade"}, "Upgrade": {"SPDY/3.1"}, spdyProtocols: {"v9.channel.k8s.io"}}, false, nil, "unable to negotiate protocol"},
		"OfForwarding":   {http.Header{"Connection": {"Upgrade"}, "Upgrade": {"SPDY/3.1"}, spdyProtocols: {forwardProtocol}}, false, nil, "unable to negotiate protocol"},
		"LaterProtocol":  {http.Header{"Connection": {"keep-alive, upgrade"}, "Upgrade": {"spdy/3.1"}, spdyProtocols: {"v9.channel.k8s.io, v4.channel.k8s.io"}}, false, nil, ""},
		"NoPorts":        {http.Header{"Connection": {"Upgrade"}, "Upgrade": {"websocket"}}, true, nil, "0 ports, want 1 to 64"},
		"ManyPorts":      {http.Header{"Connection": {"Upgrade"}, "Upgrade": {"websocket"}}, true, make([]uint16, 65), "65 ports, want 1 to 64"},
		"PortsOfTunnels": {http.Header{"Connection": {"Upgrade"}, "Upgrade": {"websocket"}, socketProtocols: {tunnelPrefix + forwardProtocol}}, true, nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := New(&http.Request{Header: tc.header, URL: &url.URL{}}, Options{Forward: tc.forward, Ports: tc.ports})
			if (err == nil) != (tc.want == "") || (err != nil && !strings.Contains(err.Error(), tc.want)) {
				t.Errorf("error is %v, want %q", err, tc.want)
			}
		})
	}
}
