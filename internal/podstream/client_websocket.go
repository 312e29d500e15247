// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package podstream

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gorilla/websocket"
	"github.com/moby/spdystream/spdy"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/remotecommand"
)

// socketClient is a client that speaks WebSocket, of which each message begins
// with the number of the channel that it is of.
type socketClient struct {
	call     *Call
	conn     *websocket.Conn
	channels []*stream // nil for those that are not there
	base64   bool      // the protocol is of text
	closes   bool      // the protocol has a message that ends a channel

	mu   sync.Mutex // of what is written
	left int        // streams that the host has not ended
}

func newSocketClient(call *Call, conn *websocket.Conn) *socketClient {
	c := &socketClient{
		call: call, conn: conn,
		base64: strings.Contains(call.protocol, "base64"), closes: call.protocol == remotecommand.StreamProtocolV5Name,
	}
	if call.Forward {
		for _, port := range call.Ports {
			c.channels = append(c.channels, &stream{kind: corev1.StreamTypeData, port: port}, &stream{kind: corev1.StreamTypeError, port: port})
		}
	} else {
		c.channels = make([]*stream, remotecommand.StreamResize+1)
		for _, kind := range call.kinds() {
			c.channels[channelOf[kind]] = &stream{kind: kind}
		}
	}
	for i, s := range c.channels {
		if s != nil {
			s.id = spdy.StreamId(2*i + 1)
			c.left++
		}
	}
	return c
}

func numberOf(s *stream) byte { return byte(s.id / 2) }

// begin opens all streams, and tells the client that it may begin as well.
func (c *socketClient) begin(h *host) error {
	for i, s := range c.channels {
		if s == nil {
			continue
		}
		request := ""
		if c.call.Forward {
			request = strconv.Itoa(i / 2)
		}
		h.open(s, request)
	}
	if !c.call.Forward {
		for _, number := range []int{remotecommand.StreamStdOut, remotecommand.StreamStdErr, remotecommand.StreamErr} {
			if s := c.channels[number]; s != nil {
				return c.write(s, make([]byte, headSize))
			}
		}
	}
	for _, s := range c.channels {
		if err := c.write(s, binary.LittleEndian.AppendUint16(make([]byte, headSize), s.port)); err != nil {
			return err
		}
	}
	return nil
}

// read carries what the client says until it leaves.
func (c *socketClient) read(h *host) error {
	for {
		_, message, err := c.conn.NextReader()
		if err != nil {
			return err
		}
		if err := c.readMessage(h, message); err != nil {
			return err
		}
	}
}

func (c *socketClient) readMessage(h *host, message io.Reader) error {
	var number [2]byte
	if _, err := io.ReadFull(message, number[:1]); errors.Is(err, io.EOF) {
		return nil
	} else if err != nil {
		return err
	}
	if c.closes && number[0] == remotecommand.StreamClose {
		if _, err := io.ReadFull(message, number[1:]); err != nil {
			return err
		}
		if s := c.channel(number[1]); s != nil {
			return h.data(s.id, fin, message, 0)
		}
		return errFrame
	}
	if c.base64 {
		number[0] -= '0'
		message = base64.NewDecoder(base64.StdEncoding, message)
	}
	if s := c.channel(number[0]); s != nil {
		return h.data(s.id, 0, message, math.MaxInt)
	}
	return nil // of a channel that there is not
}

// channel returns a stream that clients write to.
func (c *socketClient) channel(number byte) *stream {
	if int(number) >= len(c.channels) || c.channels[number] == nil {
		return nil
	}
	switch s := c.channels[number]; s.kind {
	case corev1.StreamTypeStdin, corev1.StreamTypeResize, corev1.StreamTypeData:
		return s
	}
	return nil
}

// write sends a message, which has space for a header before it. It is one frame:
// some clients take each for a message.
func (c *socketClient) write(s *stream, p []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.base64 {
		text := append([]byte{'0' + numberOf(s)}, base64.StdEncoding.EncodeToString(p[headSize:])...)
		return c.conn.WriteMessage(websocket.TextMessage, text)
	}
	p[headSize-1] = numberOf(s)
	return c.conn.WriteMessage(websocket.BinaryMessage, p[headSize-1:])
}

func (c *socketClient) opened(*stream) error { return nil }

func (c *socketClient) data(s *stream, p []byte, ends bool) error {
	if len(p) > headSize {
		if err := c.write(s, p); err != nil {
			return err
		}
	}
	if ends {
		return c.ended(s)
	}
	return nil
}

func (c *socketClient) said(s *stream, text []byte) error {
	if text = c.call.failure(s, text); len(text) == 0 {
		return nil
	}
	return c.write(s, append(make([]byte, headSize), text...))
}

// ended ends the call with its last stream.
func (c *socketClient) ended(*stream) error {
	if c.left--; c.left == 0 {
		return io.EOF
	}
	return nil
}

func (c *socketClient) pinged(uint32) error { return nil }

func (c *socketClient) ping() error {
	return c.conn.WriteControl(websocket.PingMessage, nil, time.Time{})
}

// end says that nothing follows.
func (c *socketClient) end() {
	bye := websocket.FormatCloseMessage(websocket.CloseNormalClosure, "")
	_ = c.conn.WriteControl(websocket.CloseMessage, bye, time.Now().Add(c.call.linger))
}
