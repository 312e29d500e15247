// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway_test

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"strings"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// frames is a client of HTTP/2 that sends frames as it likes.
type frames struct {
	net.Conn
	*http2.Framer
	block   bytes.Buffer
	encoder *hpack.Encoder
	decoder *hpack.Decoder
	stream  uint32 // the next one
}

// newFrames begins HTTP/2 on a connection.
func newFrames(conn net.Conn, settings ...http2.Setting) (*frames, error) {
	f := &frames{Conn: conn, Framer: http2.NewFramer(conn, conn), stream: 1}
	f.encoder, f.decoder = hpack.NewEncoder(&f.block), hpack.NewDecoder(4096, nil)
	if _, err := io.WriteString(conn, http2.ClientPreface); err != nil {
		return nil, err
	}
	return f, f.WriteSettings(settings...)
}

// header returns the block of a request's header, whose further fields are NAME: VALUE.
func (f *frames) header(method, path, token string, fields ...string) []byte {
	f.block.Reset()
	write := func(name, value string) {
		_ = f.encoder.WriteField(hpack.HeaderField{Name: name, Value: value}) // to memory
	}
	write(":method", method)
	write(":scheme", "https")
	write(":authority", "berth")
	write(":path", path)
	if token != "" {
		write("authorization", "Bearer "+token)
	}
	for _, field := range fields {
		name, value, _ := strings.Cut(field, ": ")
		write(name, value)
	}
	return f.block.Bytes()
}

// request begins a stream with a request. Its header may be longer than a frame.
func (f *frames) request(endStream bool, block []byte) (stream uint32, err error) {
	stream = f.stream
	f.stream += 2
	const most = 16 << 10
	first, rest := block[:min(most, len(block))], block[min(most, len(block)):]
	err = f.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: first, EndStream: endStream, EndHeaders: len(rest) == 0})
	for err == nil && len(rest) > 0 {
		n := min(most, len(rest))
		err = f.WriteContinuation(stream, n == len(rest), rest[:n])
		rest = rest[n:]
	}
	return stream, err
}

// await reads frames until the response of a stream begins, and returns its status.
func (f *frames) await(stream uint32) (status string, err error) {
	f.decoder.SetEmitFunc(func(h hpack.HeaderField) {
		if h.Name == ":status" {
			status = h.Value
		}
	})
	for {
		frame, err := f.ReadFrame()
		if err != nil {
			return "", err
		}
		switch frame := frame.(type) {
		case *http2.HeadersFrame:
			if _, err := f.decoder.Write(frame.HeaderBlockFragment()); err != nil || frame.StreamID == stream {
				return status, err
			}
		case *http2.RSTStreamFrame:
			if frame.StreamID == stream {
				return "", fmt.Errorf("stream %d is reset: %v", stream, frame.ErrCode)
			}
		case *http2.GoAwayFrame:
			return "", fmt.Errorf("the server leaves: %v", frame.ErrCode)
		}
	}
}
