// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package segment encodes rows of a store for its replica in a bucket, and decodes them. What is decoded comes from outside, and may be
// anything: a decoder allocates a bounded amount of memory, and accepts only what an encoder can have written.
//
// A segment is compressed with zstd. It consists of a header in JSON, the rows, and a SHA-256 of all that. Header and rows have their
// lengths before them.
package segment

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"time"
	"unicode/utf8"

	"github.com/klauspost/compress/zstd"

	"github.com/berth-dev/berth/kine/sqlite"
)

const (
	// RowBytes is how many bytes of rows a segment has, and those of one more row.
	RowBytes = 512 << 10
	// MaxBytes is the maximum size of a segment that is not compressed.
	MaxBytes = RowBytes + sqlite.LongestRow + 1<<20
	// MaxObject is the maximum size of a compressed segment.
	MaxObject = MaxBytes + 1<<20

	version   = 1
	maxHeader = 4 << 10
	window    = 256 << 10 // of the compression, so that an encoder takes little memory
)

// ErrDamaged means that a segment is not as it was written.
var ErrDamaged = errors.New("damaged")

// Header says what a segment has.
type Header struct {
	Version int    `json:"version"`
	Space   string `json:"space"`
	Stream  string `json:"stream"` // the history that it belongs to
	First   int64  `json:"first"`  // revision of the first row
	Last    int64  `json:"last"`
	// Previous is the digest of the row before the first.
	Previous string `json:"previous"`
	// Time is when the rows were read: what was acknowledged until then is in this segment, or in an earlier one.
	Time time.Time `json:"time"`
	// Elsewhere means that a process on another machine sent the rows. If somebody has taken over that process, they may be anything.
	Elsewhere bool `json:"elsewhere,omitempty"`
}

// Codec encodes and decodes. It is safe for concurrent use.
type Codec struct {
	encoder *zstd.Encoder
	decoder *zstd.Decoder
}

// NewCodec returns a codec, which encodes one segment at a time.
func NewCodec() (*Codec, error) {
	encoder, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(window), zstd.WithLowerEncoderMem(true), zstd.WithEncoderCRC(false))
	if err != nil {
		return nil, err
	}
	decoder, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(MaxBytes), zstd.WithDecoderLowmem(true))
	if err != nil {
		return nil, err
	}
	return &Codec{encoder, decoder}, nil
}

// Encode returns a segment of rows with consecutive revisions, of which there is at least one. It sets the fields of the header that follow
// from the rows.
func (c *Codec) Encode(h Header, rows []sqlite.Row) ([]byte, error) {
	h.Version, h.First, h.Last = version, rows[0].ID, rows[len(rows)-1].ID
	head, err := json.Marshal(h)
	if err != nil {
		return nil, err
	}
	size := len(head)
	for i := range rows {
		size += rows[i].Size() + 16
	}
	data := appendBytes(make([]byte, 0, size+sha256.Size), head)
	var row []byte
	for i := range rows {
		row = appendRow(row[:0], &rows[i])
		data = appendBytes(data, row)
	}
	sum := sha256.Sum256(data)
	if data = append(data, sum[:]...); len(data) > MaxBytes {
		return nil, fmt.Errorf("a segment of %d bytes, at most %d are possible", len(data), MaxBytes)
	}
	return c.encoder.EncodeAll(data, make([]byte, 0, len(data)/4)), nil
}

// Decode returns what a segment has. It fails with [ErrDamaged].
func (c *Codec) Decode(object []byte) (h Header, rows []sqlite.Row, err error) {
	data, err := c.decoder.DecodeAll(object, nil)
	if err != nil {
		return Header{}, nil, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	if len(data) < sha256.Size {
		return Header{}, nil, fmt.Errorf("%w: it is cut off", ErrDamaged)
	}
	data, sum := data[:len(data)-sha256.Size], data[len(data)-sha256.Size:]
	if have := sha256.Sum256(data); !bytes.Equal(have[:], sum) {
		return Header{}, nil, fmt.Errorf("%w: its checksum is another one", ErrDamaged)
	}
	head, data, ok := cutBytes(data)
	if !ok || len(head) > maxHeader {
		return Header{}, nil, fmt.Errorf("%w: it has no header", ErrDamaged)
	}
	if err := json.Unmarshal(head, &h); err != nil {
		return Header{}, nil, fmt.Errorf("%w: its header: %w", ErrDamaged, err)
	}
	if h.Version != version {
		return Header{}, nil, fmt.Errorf("%w: its version is %d, and this Berth reads version %d", ErrDamaged, h.Version, version)
	}
	size := 0
	for next := h.First; len(data) > 0; next++ {
		if size >= RowBytes { // also because a row takes more memory than its bytes
			return Header{}, nil, fmt.Errorf("%w: it has more than %d bytes of rows, and others after them", ErrDamaged, RowBytes)
		}
		var encoded []byte
		if encoded, data, ok = cutBytes(data); !ok {
			return Header{}, nil, fmt.Errorf("%w: a row is cut off", ErrDamaged)
		}
		row, ok := rowOf(encoded)
		if !ok || row.ID != next {
			return Header{}, nil, fmt.Errorf("%w: it doesn't have revision %d", ErrDamaged, next)
		}
		rows = append(rows, row)
		size += row.Size()
	}
	if len(rows) == 0 || rows[len(rows)-1].ID != h.Last {
		return Header{}, nil, fmt.Errorf("%w: it has %d rows, from revision %d to %d", ErrDamaged, len(rows), h.First, h.Last)
	}
	return h, rows, nil
}

// Digest identifies a row, and with it the history that led to it: no other store has the same value at the same revision.
func Digest(r *sqlite.Row) string {
	sum := sha256.Sum256(appendRow(nil, r))
	return hex.EncodeToString(sum[:8])
}

func appendBytes(to, b []byte) []byte {
	return append(binary.AppendUvarint(to, uint64(len(b))), b...)
}

func cutBytes(data []byte) (b, rest []byte, ok bool) {
	n, size := binary.Uvarint(data)
	if size <= 0 || n > uint64(len(data)-size) {
		return nil, nil, false
	}
	data = data[size:]
	return data[:n:n], data[n:], true
}

// Bits of a row.
const (
	created = 1 << iota
	deleted
	hasValue
)

func appendRow(to []byte, r *sqlite.Row) []byte {
	var bits byte
	if r.Created {
		bits |= created
	}
	if r.Deleted {
		bits |= deleted
	}
	if r.Value != nil {
		bits |= hasValue
	}
	to = append(to, bits)
	for _, n := range []int64{r.ID, r.CreateRevision, r.PrevRevision, r.Lease} {
		to = binary.AppendVarint(to, n)
	}
	to = appendBytes(to, []byte(r.Name))
	return append(to, r.Value...)
}

func rowOf(data []byte) (r sqlite.Row, ok bool) {
	if len(data) == 0 || data[0] >= hasValue<<1 {
		return r, false
	}
	bits := data[0]
	data = data[1:]
	for _, n := range []*int64{&r.ID, &r.CreateRevision, &r.PrevRevision, &r.Lease} {
		var size int
		if *n, size = binary.Varint(data); size <= 0 || *n < 0 || *n > math.MaxInt64/2 {
			return r, false
		}
		data = data[size:]
	}
	name, data, ok := cutBytes(data)
	if !ok || !utf8.Valid(name) || bits&hasValue == 0 && len(data) > 0 {
		return r, false
	}
	r.Name, r.Created, r.Deleted = string(name), bits&created != 0, bits&deleted != 0
	if bits&hasValue != 0 {
		r.Value = data
		if r.Value == nil {
			r.Value = []byte{}
		}
	}
	return r, true
}
