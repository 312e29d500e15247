// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package s3

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"unicode/utf8"

	"github.com/klauspost/compress/zstd"

	"github.com/berth-dev/berth/kine/dbms"
	"github.com/berth-dev/berth/kine/mirror"
	"github.com/berth-dev/berth/kine/sqlite"
)

const (
	version = 1
	// maxObject is how many bytes an object may have, and may have when it is decompressed.
	maxObject = 16 << 20
	// maxHeader is how many bytes its header may have.
	maxHeader = 2 << 20
	window    = 256 << 10 // of the compression, so that an encoder takes little memory
)

// An object is compressed with zstd. It consists of a header in JSON, with its length before it, of its content, and of a SHA-256 of all
// that.
type header struct {
	Version int `json:"version"`
	// Object is the key of the object, without the prefix.
	Object string `json:"object"`
	// Store is in the object store, and Record in a record.
	Store  *identity `json:"store,omitempty"`
	Record *record   `json:"record,omitempty"`
}

// codec encodes and decodes objects. It is safe for concurrent use.
type codec struct {
	encoder *zstd.Encoder
	decoder *zstd.Decoder
}

// coders is how many objects are encoded at once, and decoded, by all logs of the process: each takes some MiB.
const coders = 4

// sharedCodec is that of all logs of the process.
var sharedCodec = sync.OnceValues(newCodec)

func newCodec() (*codec, error) {
	encoder, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(coders), zstd.WithWindowSize(window), zstd.WithLowerEncoderMem(true), zstd.WithEncoderCRC(false))
	if err != nil {
		return nil, err
	}
	decoder, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(coders), zstd.WithDecoderMaxMemory(maxObject), zstd.WithDecoderLowmem(true))
	if err != nil {
		return nil, err
	}
	return &codec{encoder, decoder}, nil
}

// encode returns an object.
func (c *codec) encode(h header, content []byte) ([]byte, error) {
	h.Version = version
	head, err := json.Marshal(h)
	if err != nil {
		return nil, err
	}
	data := make([]byte, 0, len(head)+len(content)+binary.MaxVarintLen64+sha256.Size)
	data = append(appendBytes(data, head), content...)
	sum := sha256.Sum256(data)
	if data = append(data, sum[:]...); len(data) > maxObject || len(head) > maxHeader {
		return nil, fmt.Errorf("the object %s would have %d bytes, and may have %d", h.Object, len(data), maxObject)
	}
	return c.encoder.EncodeAll(data, make([]byte, 0, len(data)/4)), nil
}

// decode returns what an object with this key has. It fails with an ErrDamaged that names the object.
func (c *codec) decode(key string, object []byte) (h header, content []byte, err error) {
	wrong := func(err error) (header, []byte, error) {
		return header{}, nil, fmt.Errorf("%w: the object %s: %w", sqlite.ErrDamaged, key, err)
	}
	data, err := c.decoder.DecodeAll(object, nil)
	if err != nil {
		return wrong(err)
	}
	if len(data) < sha256.Size {
		return wrong(errors.New("it is cut off"))
	}
	data, sum := data[:len(data)-sha256.Size], data[len(data)-sha256.Size:]
	if have := sha256.Sum256(data); !bytes.Equal(have[:], sum) {
		return wrong(errors.New("its checksum is another one"))
	}
	head, content, ok := cutBytes(data)
	if !ok || len(head) > maxHeader {
		return wrong(errors.New("it has no header"))
	}
	if err := json.Unmarshal(head, &h); err != nil {
		return wrong(fmt.Errorf("its header: %w", err))
	}
	if h.Version != version {
		return wrong(fmt.Errorf("its version is %d, and this Berth reads version %d", h.Version, version))
	}
	if h.Object != key {
		return wrong(fmt.Errorf("it was written as %.200q", h.Object))
	}
	return h, content, nil
}

// identity is what the object store says.
type identity struct {
	Space string `json:"space"`
	ID    string `json:"id"`
	// Log is the name of the log. A store that was deleted, and created again, has another one, so that a process that doesn't know
	// that yet can't write to it.
	Log string `json:"log"`
}

func (i *identity) owner() dbms.Owner { return dbms.Owner{Space: i.Space, ID: i.ID} }

// record is what a record says, beside its rows: the state after it.
type record struct {
	mirror.Meta
	Number int64 `json:"number"`
	// Nonce is random. By it, a process recognizes a record that it has written without knowing.
	Nonce string `json:"nonce"`
	// Start is the number of the takeover of this epoch.
	Start int64 `json:"start"`
	// Takeovers are those of the last days, in the record of a takeover.
	Takeovers []takeover `json:"takeovers,omitempty"`
	// Base is the current base. The rows are those of the base, and of the records after it.
	Base base `json:"base,omitzero"`
	// Files is the name of the saved files.
	Files string `json:"files,omitempty"`
	// Written is how many bytes of rows all records up to this one have.
	Written int64 `json:"written"`
}

// base says where all rows as of a record are. The zero base is that before the first record.
type base struct {
	Name  string `json:"name"`
	Parts int    `json:"parts"`
	Bytes int64  `json:"bytes"`
	// Number is that of the record, and Written is as in it. The rows may also have changes of later records.
	Number  int64 `json:"number"`
	Written int64 `json:"written"`
}

// plausible reports whether there may be such a base. Somebody who has the keys of the bucket may have written anything.
func (b base) plausible() bool { return b.Parts >= 0 && b.Parts <= maxListed && b.Bytes >= 0 }

// takeover is the number of a record, and its time in seconds since 1970.
type takeover struct {
	Number int64 `json:"n"`
	Time   int64 `json:"t"`
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

func appendRow(to []byte, r *mirror.Row) []byte {
	return appendBytes(appendBytes(to, []byte(r.Key)), r.Encode())
}

// eachRow passes the rows of an object, none of which is later than a revision.
func eachRow(key string, content []byte, last int64, pass func(mirror.Row) error) error {
	for len(content) > 0 {
		name, rest, ok := cutBytes(content)
		if !ok || !utf8.Valid(name) {
			return fmt.Errorf("%w: the object %s: the key of a row is cut off", sqlite.ErrDamaged, key)
		}
		value, rest, ok := cutBytes(rest)
		if !ok {
			return fmt.Errorf("%w: the object %s: a row is cut off", sqlite.ErrDamaged, key)
		}
		r, err := mirror.Decode(string(name), value, last)
		if err == nil {
			err = pass(r)
		}
		if err != nil {
			return err
		}
		content = rest
	}
	return nil
}
