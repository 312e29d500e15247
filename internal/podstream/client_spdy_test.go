// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package podstream

import (
	"bufio"
	"bytes"
	"compress/flate"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/moby/spdystream/spdy"
	corev1 "k8s.io/api/core/v1"
	clocktesting "k8s.io/utils/clock/testing"
)

// upgrade asks for a call by SPDY, and returns the connection.
func (env *testEnv) upgrade(t *testing.T, path, protocol string) (net.Conn, *bufio.Reader) {
	t.Helper()
	u, err := url.Parse(env.url)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("tcp", u.Host)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\nX-Stream-Protocol-Version: %s\r\n\r\n", path, protocol)
	from := bufio.NewReader(conn)
	resp, err := http.ReadResponse(from, nil)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("answer is %s", resp.Status)
	}
	return conn, from
}

// syn opens a stream.
func syn(id uint32, h *headers, pairs ...[2]string) []byte {
	return controlFrame(spdy.TypeSynStream, 0, append(append(word(id), 0, 0, 0, 0, 0, 0), h.encode(pairs...)...))
}

const cat = "/exec?command=cat&stdin=1&stdout=1"

// bomb is a header with a name of 200 MB, of which 4 KB are sent.
func bomb(t *testing.T) []byte {
	t.Helper()
	sent := bytes.NewBufferString(zlibHead)
	z, err := flate.NewWriter(sent, flate.BestCompression)
	if err != nil {
		t.Fatal(err)
	}
	const name = 200 << 20
	if _, err := z.Write(append(word(1), word(name)...)); err != nil {
		t.Fatal(err)
	}
	for sent.Len() < maxControl {
		if _, err := z.Write(make([]byte, 1<<20)); err != nil {
			t.Fatal(err)
		}
	}
	return append(append(word(1), 0, 0, 0, 0, 0, 0), sent.Bytes()...)[:maxControl]
}

// S5: a tenant that speaks nonsense is left at once, and holds nothing: none
// of what it announces is set aside.
func TestWhoSpeaksNoSPDYIsLeft(t *testing.T) {
	env := newEnv(t)
	for name, sent := range map[string][]byte{
		"Garbage":         []byte(strings.Repeat("\xff", 1000)),
		"HTTP":            []byte("GET /api/v1/secrets HTTP/1.1\r\nHost: x\r\n\r\n" + strings.Repeat("\x80", 1000)),
		"LargeControl":    append([]byte("\x80\x03\x00\x01\x00\xff\xff\xff"), make([]byte, 5000)...),
		"NoZlib":          controlFrame(spdy.TypeSynStream, 0, make([]byte, 100)),
		"ShortSyn":        append(controlFrame(spdy.TypeSynStream, 0, make([]byte, 3)), make([]byte, 8000)...),
		"Bomb":            controlFrame(spdy.TypeSynStream, 0, bomb(t)),
		"ManyHeaders":     syn(1, &headers{}, many(17)...),
		"LongHeader":      syn(1, &headers{}, [2]string{"streamtype", strings.Repeat("x", 300)}),
		"ManySettings":    controlFrame(spdy.TypeSettings, 0, word(1<<31)),
		"EvenStream":      syn(2, &headers{}, [2]string{"streamtype", "error"}),
		"StreamZero":      syn(0, &headers{}, [2]string{"streamtype", "error"}),
		"SynReply":        controlFrame(spdy.TypeSynReply, 0, append(word(1), (&headers{}).encode()...)),
		"Headers":         controlFrame(spdy.TypeHeaders, 0, append(word(1), (&headers{}).encode()...)),
		"UnknownKind":     controlFrame(77, 0, nil),
		"PingZero":        controlFrame(spdy.TypePing, 0, word(0)),
		"GoAway":          controlFrame(spdy.TypeGoAway, 0, make([]byte, 8)),
		"CutOff":          []byte("\x80\x03\x00"),
		"DataOfNoStream":  []byte("\x00\x00\x00\x63\x00\x00\x00\x04abcd"),
		"CutOffInData":    append(syn(1, &headers{}, [2]string{"streamtype", "error"}), "\x00\x00\x00\x01\x00\xff\xff\xffabc"...),
		"StreamGoesBack":  append(syn(5, &headers{}, [2]string{"streamtype", "error"}), syn(3, &headers{begun: true}, [2]string{"streamtype", "stdin"})...),
		"UppercaseHeader": syn(1, &headers{}, [2]string{"streamType", "error"}),
		"ForbiddenHeader": syn(1, &headers{}, [2]string{"connection", "error"}),
	} {
		t.Run(name, func(t *testing.T) {
			conn, from := env.upgrade(t, cat, "v4.channel.k8s.io")
			before := allocated()
			if _, err := conn.Write(sent); err != nil {
				t.Fatal(err)
			}
			if strings.HasPrefix(name, "CutOff") {
				closeWrite(t, conn)
			}
			_ = conn.SetReadDeadline(time.Now().Add(testTimeout))
			if _, err := io.Copy(io.Discard, from); errors.Is(err, os.ErrDeadlineExceeded) {
				t.Error("the client is still listened to")
			}
			if took := allocated() - before; took > 16<<20 {
				t.Errorf("%d bytes were set aside for %d", took, len(sent))
			}
			env.free(t)
		})
	}
}

func many(n int) (pairs [][2]string) {
	for i := range n {
		pairs = append(pairs, [2]string{"h" + strconv.Itoa(i), "x"})
	}
	return pairs
}

// allocated is how many bytes have ever been.
func allocated() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.TotalAlloc
}

// S5: streams that a host does not wait for are refused: container runtimes leave
// a goroutine for each.
func TestStreamsThatNobodyWaitsForAreRefused(t *testing.T) {
	env := newEnv(t)
	refused := func(t *testing.T, conn net.Conn, from io.Reader, id uint32, h *headers, pairs ...[2]string) {
		t.Helper()
		if _, err := conn.Write(syn(id, h, pairs...)); err != nil {
			t.Fatal(err)
		}
		for {
			head, err := readHead(from)
			if err != nil {
				t.Fatal(err)
			}
			body := make([]byte, head.length)
			if _, err := io.ReadFull(from, body); err != nil {
				t.Fatal(err)
			}
			if head.control && len(body) >= 4 && binary.BigEndian.Uint32(body) == id {
				if head.kind != spdy.TypeRstStream {
					t.Errorf("stream %d of %v is answered by %v", id, pairs, head.kind)
				}
				return
			}
		}
	}
	t.Run("Exec", func(t *testing.T) {
		conn, from := env.upgrade(t, cat, "v4.channel.k8s.io")
		var h headers
		_, _ = conn.Write(syn(1, &h, [2]string{"streamtype", corev1.StreamTypeError}))
		for i, kind := range []string{corev1.StreamTypeError, corev1.StreamTypeStderr, corev1.StreamTypeResize, corev1.StreamTypeData, "other", ""} {
			refused(t, conn, from, uint32(2*i+3), &h, [2]string{"streamtype", kind})
		}
		_ = conn.Close()
	})
	t.Run("Forward", func(t *testing.T) {
		conn, from := env.upgrade(t, "/portforward", forwardProtocol)
		var h headers
		kind := [2]string{"streamtype", corev1.StreamTypeData}
		for i, pairs := range [][][2]string{
			{kind}, {kind, {"port", "0"}}, {kind, {"port", "65536"}}, {kind, {"port", "-1"}}, {kind, {"port", "http"}}, {kind, {"port", "80,81"}},
			{{"streamtype", corev1.StreamTypeStdin}, {"port", "80"}}, {kind, {"port", "80"}, {"requestid", strings.Repeat("1", 100)}},
		} {
			refused(t, conn, from, uint32(2*i+1), &h, pairs...)
		}
		const first = 101
		go func() {
			for i := range uint32(maxOpen) {
				_, _ = conn.Write(syn(first+2*i, &h, kind, [2]string{"port", "80"}, [2]string{"requestid", strconv.Itoa(int(i))}))
			}
		}()
		for range maxOpen {
			if head, err := readFrame(from); err != nil || head.kind != spdy.TypeSynReply {
				t.Fatalf("answer is %+v, %v", head, err)
			}
		}
		refused(t, conn, from, first+2*maxOpen, &h, kind, [2]string{"port", "80"})
		_ = conn.Close()
	})
	env.free(t)
}

// S5: whoever resets what it opens, again and again, would have the host hold a
// goroutine and a timer for each: container runtimes wait for a stream's other one.
func TestStreamsThatWereResetCountUntilTheHostHasForgottenThem(t *testing.T) {
	var sent, said bytes.Buffer
	var h headers
	now := clocktesting.NewFakePassiveClock(time.Unix(1_700_000_000, 0))
	host := newHost(struct {
		io.Reader
		io.Writer
	}{strings.NewReader(""), io.Discard})
	host.clock = now
	client, err := newSPDYClient(&Call{Options: Options{Forward: true}}, writeOnly{to: &said}, bufio.NewReader(&sent))
	if err != nil {
		t.Fatal(err)
	}
	id := uint32(1)
	refused := func() bool {
		t.Helper()
		sent.Write(syn(id, &h, [2]string{"streamtype", corev1.StreamTypeError}, [2]string{"port", "80"}, [2]string{"requestid", strconv.Itoa(int(id))}))
		sent.Write(resetFrame(spdy.StreamId(id), spdy.Cancel))
		id += 2
		said.Reset()
		if err := client.read(host); !errors.Is(err, io.EOF) {
			t.Fatal(err)
		}
		return said.Len() > 0
	}
	for i := range maxOpen {
		if refused() {
			t.Fatalf("stream %d is refused", i)
		}
	}
	now.SetTime(now.Now().Add(pairing - time.Second))
	if !refused() {
		t.Error("one more than there may be is opened")
	}
	now.SetTime(now.Now().Add(time.Second))
	if refused() {
		t.Error("the host has forgotten them, and another is refused")
	}
	host.open(&stream{id: 9999, kind: corev1.StreamTypeData, hostDone: true}, "")
	before := host.size()
	host.reset(9999)
	if after := host.size(); after != before-1 {
		t.Errorf("%d streams count once one is reset that the host has ended, want %d", after, before-1)
	}
}

// heardBy is a connection of which only writes are used.
type writeOnly struct {
	net.Conn
	to io.Writer
}

func (h writeOnly) Write(p []byte) (int, error) { return h.to.Write(p) }

// S5: whatever a client sends, the server ends and leaves nothing.
func FuzzSPDY(f *testing.F) {
	f.Add([]byte("\x00\x00\x00\x05\x01\x00\x00\x02hi"))
	f.Add(append(syn(1, &headers{}, [2]string{"streamtype", "error"}), "\x00\x00\x00\x01\x01\x00\x00\x00"...))
	f.Add(controlFrame(spdy.TypePing, 0, word(1)))
	f.Fuzz(func(t *testing.T, sent []byte) {
		for _, forward := range []bool{false, true} {
			call := &Call{Options: Options{Forward: forward, Stdin: true, TTY: true, Said: func(s string) string { return s }}, linger: linger}
			near, far := net.Pipe()
			go func() { _, _ = io.Copy(io.Discard, far) }()
			client, err := newSPDYClient(call, near, bufio.NewReader(bytes.NewReader(sent)))
			if err != nil {
				t.Fatal(err)
			}
			var got bytes.Buffer
			h := newHost(struct {
				io.Reader
				io.Writer
			}{bytes.NewReader(sent), &got})
			if err := client.read(h); err == nil {
				t.Error("reading does not end")
			}
			h.run(client)
			_, _ = near.Close(), far.Close()
			checkSent(t, &got)
		}
	})
}

// checkSent checks that what was sent to a host is well-formed.
func checkSent(t *testing.T, sent *bytes.Buffer) {
	t.Helper()
	framer, err := spdy.NewFramer(io.Discard, sent)
	if err != nil {
		t.Fatal(err)
	}
	for {
		frame, err := framer.ReadFrame()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatalf("host is sent what it cannot read: %v", err)
		}
		if f, ok := frame.(*spdy.DataFrame); ok && len(f.Data) > maxPart {
			t.Errorf("host is sent %d bytes at once", len(f.Data))
		}
	}
}
