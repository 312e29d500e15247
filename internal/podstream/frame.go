// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package podstream

import (
	"encoding/binary"
	"errors"
	"io"

	"github.com/moby/spdystream/spdy"
)

const (
	// maxPart is how much of a frame of data is carried at once, in bytes: as much
	// as those who copy files send in one.
	maxPart = 32 << 10
	// maxControl bounds all other frames: those there are have 150 bytes.
	maxControl = 4 << 10

	headSize = 8
	version  = 3
	fin      = byte(spdy.DataFlagFin)
)

// errFrame is what a peer is left for.
var errFrame = errors.New("a frame is not of SPDY/3.1, or too large")

// head begins a frame of SPDY; length bytes follow.
type head struct {
	control bool
	kind    spdy.ControlFrameType // of a control frame
	stream  spdy.StreamId         // of a frame of data
	flags   byte
	length  int
}

func parseHead(b []byte) (head, error) {
	first, second := binary.BigEndian.Uint32(b), binary.BigEndian.Uint32(b[4:])
	h := head{control: first>>31 == 1, flags: byte(second >> 24), length: int(second & 0xffffff)}
	if !h.control {
		h.stream = spdy.StreamId(first)
		return h, nil
	}
	h.kind = spdy.ControlFrameType(first) // its lower half
	if first>>16&0x7fff != version || h.length > maxControl {
		return head{}, errFrame
	}
	return h, nil
}

// readHead reads the head of the next frame. The end between two frames is [io.EOF].
func readHead(r io.Reader) (head, error) {
	var b [headSize]byte
	if _, err := io.ReadFull(r, b[:]); err != nil {
		return head{}, err
	}
	return parseHead(b[:])
}

func putDataHead(b []byte, stream spdy.StreamId, last bool, length int) {
	binary.BigEndian.PutUint32(b, uint32(stream))
	binary.BigEndian.PutUint32(b[4:], uint32(length)) // at most maxPart
	if last {
		b[4] = fin
	}
}

func controlFrame(kind spdy.ControlFrameType, flags byte, body []byte) []byte {
	b := word(1<<31 | version<<16 | uint32(kind))
	b = binary.BigEndian.AppendUint32(b, uint32(flags)<<24|uint32(len(body)))
	return append(b, body...)
}

func resetFrame(stream spdy.StreamId, status spdy.RstStreamStatus) []byte {
	return controlFrame(spdy.TypeRstStream, 0, append(word(uint32(stream)), word(uint32(status))...))
}

func word(v uint32) []byte { return binary.BigEndian.AppendUint32(nil, v) }

// headers are encoded for one peer, in order.
type headers struct{ begun bool }

// zlibHead begins what zlib compresses with SPDY's dictionary, which is told by
// its checksum.
const zlibHead = "\x78\x20\xe3\xc6\xa7\xc2"

// encode is a block of headers, as zlib has what it leaves as it is: a compressor
// takes 1 MB.
func (h *headers) encode(pairs ...[2]string) []byte {
	block := word(uint32(len(pairs)))
	for _, pair := range pairs {
		for _, s := range pair {
			block = binary.BigEndian.AppendUint32(block, uint32(len(s)))
			block = append(block, s...)
		}
	}
	var b []byte
	if !h.begun {
		b, h.begun = append(b, zlibHead...), true
	}
	for _, stored := range [][]byte{block, nil} { // the second has readers give out the first
		n := uint16(len(stored))
		b = append(b, 0)
		b = binary.LittleEndian.AppendUint16(b, n)
		b = binary.LittleEndian.AppendUint16(b, ^n)
		b = append(b, stored...)
	}
	return b
}
