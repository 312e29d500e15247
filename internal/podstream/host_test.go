// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package podstream

import (
	"bytes"
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
	"k8s.io/client-go/tools/remotecommand"
)

// lastWords is a host that says something once its streams are open, and is gone.
type lastWords struct {
	streams int // that are to be opened
	said    []byte
	headers headers
	unread  []byte
	says    chan []byte
	done    chan struct{}
	end     func()
}

func newLastWords(streams int, said []byte) *lastWords {
	l := &lastWords{streams: streams, said: said, says: make(chan []byte, streams+1), done: make(chan struct{})}
	l.end = sync.OnceFunc(func() { close(l.done) })
	return l
}

func (l *lastWords) Read(p []byte) (int, error) {
	for len(l.unread) == 0 {
		select {
		case said, more := <-l.says:
			if !more {
				return 0, io.EOF
			}
			l.unread = said
		case <-l.done:
			return 0, io.EOF
		}
	}
	n := copy(p, l.unread)
	l.unread = l.unread[n:]
	return n, nil
}

func (l *lastWords) Write(p []byte) (int, error) {
	if h, err := parseHead(p); err != nil || !h.control || h.kind != spdy.TypeSynStream {
		return len(p), nil
	}
	l.says <- controlFrame(spdy.TypeSynReply, 0, append(bytes.Clone(p[headSize:headSize+4]), l.headers.encode()...))
	if l.streams--; l.streams == 0 {
		l.says <- l.said
		close(l.says)
	}
	return len(p), nil
}

func (l *lastWords) Close() error          { l.end(); return nil }
func (l *lastWords) Done() <-chan struct{} { return l.done }

// dataFrame is what a host says on a stream.
func dataFrame(id spdy.StreamId, last bool, text string) []byte {
	b := make([]byte, headSize, headSize+len(text))
	putDataHead(b, id, last, len(text))
	return append(b, text...)
}

// executor is a client of exec by a protocol, which numbers its streams.
type executor struct {
	remotecommand.Executor
	failed, stdout spdy.StreamId
	verdict        bool // the protocol has a word for success
}

// executorsOf are clients of a command that only has output.
func executorsOf(t *testing.T, server string) map[string]executor {
	t.Helper()
	all := map[string]executor{}
	for name, e := range dialers(t, server+"/?command=x&stdout=true") {
		if all[name] = (executor{e, 1, 3, strings.Contains(name, "v4")}); strings.HasPrefix(name, "WebSocket") {
			all[name] = executor{e, 7, 3, true}
		}
	}
	return all
}

// S5, N1: a host that fails in the middle of a stream, and what it says then:
// clients take the end of a stream on which nothing was said for a success.
func TestAHostThatFailsInTheMiddleIsNotASuccess(t *testing.T) {
	gone := "the connection to the container has ended"
	for name, tc := range map[string]struct {
		said    func(failed, stdout spdy.StreamId) []byte // once some output was
		want    string
		verdict bool // only where the protocol has a word for success
	}{
		"Gone":        {said: func(_, _ spdy.StreamId) []byte { return nil }, want: gone},
		"CutInHead":   {said: func(_, _ spdy.StreamId) []byte { return []byte{0x80, 3, 0} }, want: gone},
		"CutInData":   {said: func(_, id spdy.StreamId) []byte { return append(word(uint32(id)), "\x00\x00\xff\xffabc"...) }, want: gone},
		"Garbage":     {said: func(_, _ spdy.StreamId) []byte { return []byte("\x80\x03\x00\x63\x7f\xff\xff\xff") }, want: gone},
		"GoAway":      {said: func(_, _ spdy.StreamId) []byte { return controlFrame(spdy.TypeGoAway, 0, make([]byte, 8)) }, want: gone},
		"SilentEnd":   {said: func(id, _ spdy.StreamId) []byte { return dataFrame(id, true, "") }, want: gone, verdict: true},
		"SilentReset": {said: func(id, _ spdy.StreamId) []byte { return resetFrame(id, spdy.Cancel) }, want: gone, verdict: true},
		"Text":        {said: func(id, _ spdy.StreamId) []byte { return dataFrame(id, false, "dial "+secret+": no route") }, want: "dial the node: no route"},
		"TextInPieces": {said: func(id, _ spdy.StreamId) []byte {
			return append(dataFrame(id, false, "dial "+secret[:5]), dataFrame(id, true, secret[5:]+": no route")...)
		}, want: "dial the node: no route"},
		"Status": {said: func(id, _ spdy.StreamId) []byte {
			return dataFrame(id, true, `{"status":"Failure","message":"on `+secret+`","details":{"name":"`+secret+`","causes":[{"message":"`+secret+`"}]}}`)
		}, want: "on the node"},
		"NoStatus": {said: func(id, _ spdy.StreamId) []byte {
			return dataFrame(id, true, `{"kind":"Secret","x":"`+secret+`"}`)
		}, want: "the node"},
	} {
		t.Run(name, func(t *testing.T) {
			failed, stdout := spdy.StreamId(7), spdy.StreamId(3) // as channels are numbered
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				call, err := New(r, Options{Stdout: true, Said: func(m string) string { return strings.ReplaceAll(m, secret, "the node") }})
				if err != nil {
					t.Error(err)
					return
				}
				call.Serve(w, r, newLastWords(2, append(dataFrame(stdout, false, "some of it"), tc.said(failed, stdout)...)))
			}))
			defer server.Close()
			for name, e := range executorsOf(t, server.URL) {
				if tc.verdict && !e.verdict {
					continue
				}
				failed, stdout = e.failed, e.stdout
				var out strings.Builder
				err := e.StreamWithContext(t.Context(), remotecommand.StreamOptions{Stdout: &out})
				if err == nil || !strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), secret[:6]) || !strings.HasPrefix(out.String(), "some of it") {
					t.Errorf("client by %s reads %q and is told %v, want %q", name, out.String(), err, tc.want)
				}
			}
			failed, stdout = 7, 3
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

// S5: what proxies read of a pod has not come to its end when its host has.
func TestAConnectionThatIsCutDoesNotLookComplete(t *testing.T) {
	conn := Dial(newLastWords(2, dataFrame(dialedData, false, "some of it")), 80)
	text, err := io.ReadAll(conn)
	if want := "connect to port 80: the connection to the container has ended"; string(text) != "some of it" || err == nil || err.Error() != want {
		t.Errorf("%q is read, and then %v, want %q", text, err, want)
	}
	_ = conn.Close()
}

// S5: that a pod is gone by the time its command ends does not change how it has
// ended; whatever else may stand where the code does is put into other words.
func TestTheCodeOfACommandIsToldWhenItsPodIsGone(t *testing.T) {
	for name, tc := range map[string]struct{ kind, said, want string }{
		"Code":     {"ExitCode", "137", "137"},
		"Negative": {"ExitCode", "-1", "gone"},
		"Large":    {"ExitCode", "10111213141", "gone"},
		"NoCode":   {"ExitCode", secret, "gone"},
		"Other":    {"Other", "137", "gone"},
	} {
		t.Run(name, func(t *testing.T) {
			call := &Call{Options: Options{Said: func(string) string { return "gone" }}}
			got := call.status([]byte(`{"status":"Failure","reason":"NonZeroExitCode","message":"exit","details":{"causes":[{"reason":"` + tc.kind + `","message":"` + tc.said + `"}]}}`))
			if got.Message != "gone" || len(got.Details.Causes) != 1 || got.Details.Causes[0].Message != tc.want {
				t.Errorf("client is told %+v, want %q", got, tc.want)
			}
		})
	}
}

// N1: a host that talks without an end of a failure takes a bounded part.
func TestWhatIsSaidOfAFailureIsBounded(t *testing.T) {
	b := &received{}
	h := newHost(newLastWords(1, []byte(strings.Repeat(string(dataFrame(1, false, strings.Repeat("x", 60_000))), 5))))
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
