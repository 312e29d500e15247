// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package podstream

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"
)

// socket asks for a call by WebSocket.
func (env *testEnv) socket(t *testing.T, path string, protocols ...string) *websocket.Conn {
	t.Helper()
	conn, resp, err := (&websocket.Dialer{Subprotocols: protocols}).DialContext(t.Context(), "ws"+strings.TrimPrefix(env.url, "http")+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = resp.Body.Close(), conn.Close() })
	return conn
}

// S5: a tenant that speaks nonsense over WebSocket.
func TestWhoSpeaksNonsenseInMessagesIsLeftOrNotHeard(t *testing.T) {
	env := newEnv(t)
	for name, tc := range map[string]struct {
		query, protocol, sent string
		left                  bool
	}{
		"Empty":            {cat, "v5.channel.k8s.io", "", false},
		"NoChannel":        {cat, "v5.channel.k8s.io", "\x63x", false},
		"OfTheHost":        {cat, "v5.channel.k8s.io", "\x03{\"status\":\"Success\"}", false},
		"NotAskedFor":      {cat, "v5.channel.k8s.io", "\x04{}", false},
		"CloseOfNothing":   {cat, "v5.channel.k8s.io", "\xff", true},
		"CloseOfNoChannel": {cat, "v5.channel.k8s.io", "\xff\x63", true},
		"CloseOfOutput":    {cat, "v5.channel.k8s.io", "\xff\x01", true},
		"CloseInV4":        {cat, "v4.channel.k8s.io", "\xff\x00", false},
		"NoBase64":         {cat, "v4.base64.channel.k8s.io", "0????", true},
		"NoBase64Channel":  {cat, "v4.base64.channel.k8s.io", "\x00aGk=", false},
	} {
		t.Run(name, func(t *testing.T) {
			conn := env.socket(t, tc.query, tc.protocol)
			if err := conn.WriteMessage(websocket.BinaryMessage, []byte(tc.sent)); err != nil {
				t.Fatal(err)
			}
			if !tc.left {
				hello := "\x00hello"
				if strings.Contains(tc.protocol, "base64") {
					hello = "0aGVsbG8="
				}
				if err := conn.WriteMessage(websocket.BinaryMessage, []byte(hello)); err != nil {
					t.Fatal(err)
				}
			}
			_ = conn.SetReadDeadline(time.Now().Add(testTimeout))
			var said []byte
			var err error
			for err == nil && !bytes.HasSuffix(said, []byte("hello")) && !bytes.HasSuffix(said, []byte("aGVsbG8=")) {
				var message []byte
				_, message, err = conn.ReadMessage()
				said = append(said, message...)
			}
			if left := err != nil && !errors.Is(err, os.ErrDeadlineExceeded); left != tc.left {
				t.Errorf("server said %q, and then %v", said, err)
			}
			_ = conn.Close()
			env.free(t)
		})
	}
}

// S5: legacy clients forward ports by channels.
func TestPortsAreForwardedByChannels(t *testing.T) {
	env := newEnv(t)
	port := serveEcho(t, "hi ")
	conn := env.socket(t, fmt.Sprintf("/portforward?ports=%d&ports=1", port), "v4.channel.k8s.io")
	text := make([]byte, 100_000)
	_, _ = rand.NewChaCha8([32]byte{}).Read(text)
	if err := conn.WriteMessage(websocket.BinaryMessage, append([]byte{0}, text...)); err != nil {
		t.Fatal(err)
	}
	said := map[byte][]byte{}
	for len(said[0]) < 2+3+len(text) || len(said[3]) < 3 {
		_, message, err := conn.ReadMessage()
		if err != nil {
			t.Fatal(err)
		}
		said[message[0]] = append(said[message[0]], message[1:]...)
	}
	if got := said[0]; binary.LittleEndian.Uint16(got) != uint16(port) || !bytes.Equal(got[2:], append([]byte("hi "), text...)) {
		t.Errorf("first port says %d bytes: %.20q", len(got), got)
	}
	if got := string(said[3]); got != "\x01\x00error forwarding port 1 to pod web: connection refused" {
		t.Errorf("closed port says %q", got)
	}
	_ = conn.Close()
	env.free(t)
}
