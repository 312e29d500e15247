// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package requests

import (
	"math"

	"github.com/berth-dev/berth/vcluster/stored"
)

const (
	// messageBytes is about what a protobuf message takes decoded, twice: a Pod of a list, which takes two bytes.
	messageBytes = 4000
	// scalarBytes is what a number takes, as an element of a list.
	scalarBytes = 50
	// packedBytes is what a byte may take within a field: a number of a packed list.
	packedBytes = 12
)

// protobufSize counts the fields of a protobuf document. Whether a field is text or a message is not in the document: it is
// taken for a message, as far as it can be one. Text rarely is, beyond some bytes.
type protobufSize struct {
	state protobufState
	value uint64 // of the varint that is being read
	shift uint
	at    int64
	skip  int64   // this many bytes are of no interest
	ends  []int64 // of the messages that at is in
}

type protobufState int

const (
	readingTag protobufState = iota
	readingNumber
	readingLength
)

func newProtobufSize() *protobufSize { return &protobufSize{skip: int64(len(stored.ProtobufPrefix))} }

func (d *protobufSize) Add(p []byte) (int64, error) {
	size := packedBytes * int64(len(p))
	for len(p) > 0 {
		if d.skip > 0 {
			n := min(d.skip, int64(len(p)))
			d.skip -= n
			d.at += n
			p = p[n:]
			continue
		}
		for len(d.ends) > 0 && d.at >= d.ends[len(d.ends)-1] {
			d.ends = d.ends[:len(d.ends)-1]
			d.next(readingTag)
		}
		c := p[0]
		p = p[1:]
		d.at++
		d.value |= uint64(c&0x7f) << d.shift
		d.shift += 7
		switch {
		case c < 0x80:
			size += d.number()
		case d.shift >= 64:
			d.leave(math.MaxInt64) // no varint is as long: nothing decodes it
		}
	}
	return size, nil
}

// number takes a varint that is complete, and returns what it stands for takes.
func (d *protobufSize) number() int64 {
	v, state := d.value, d.state
	d.next(readingTag)
	switch state {
	case readingNumber:
		return scalarBytes
	case readingLength:
		if v > uint64(d.left()) { //nolint:gosec // it is not negative
			d.leave(math.MaxInt64)
			return 0
		}
		if v > 0 {
			d.ends = append(d.ends, d.at+int64(v)) //nolint:gosec // it is no more than what is left
		}
		return messageBytes
	case readingTag:
	}
	switch v & 7 { // the wire type
	case 0:
		d.next(readingNumber)
	case 1:
		d.leave(8)
		return scalarBytes
	case 2:
		d.next(readingLength)
	case 5:
		d.leave(4)
		return scalarBytes
	case 6, 7: // there are none: nothing decodes the rest
		d.leave(math.MaxInt64)
	}
	return 0
}

func (d *protobufSize) next(s protobufState) { d.state, d.value, d.shift = s, 0, 0 }

// left is how much there is of the innermost message. That of the document is not known.
func (d *protobufSize) left() int64 {
	if len(d.ends) == 0 {
		return math.MaxInt64 - d.at
	}
	return d.ends[len(d.ends)-1] - d.at
}

// leave skips n bytes of the message, or what there is of it.
func (d *protobufSize) leave(n int64) {
	d.skip = min(n, d.left())
	d.next(readingTag)
}
