// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package sqlite

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
)

// Sizes and marks of SQLite's write-ahead log (https://sqlite.org/fileformat2.html#the_write_ahead_log).
const (
	walHeaderSize = 32
	walFrameSize  = 24 // of a frame's header; a page follows
	walMagic      = 0x377f0682
)

// walReader reads a log's frames and tells how far they follow from one another.
type walReader struct {
	r     *bufio.Reader
	order binary.ByteOrder
	salt  [8]byte
	frame []byte
	sum   [2]uint32 // of all up to here
}

// examineLog tells whether writes that were acknowledged are unreadable in the log at path, which a kill has left. SQLite
// takes the log to end at the first frame that doesn't add up, because that is how a write looks that the power broke off.
// But each commit was synced before the next began: at most one can be broken off. Two commits from there on show that
// the log was damaged later. Damage to the very last commit can't be told from one that never was.
func examineLog(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	w := &walReader{r: bufio.NewReaderSize(f, 1<<20)}
	sound, err := w.header()
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	broken := 0
	for n := 1; ; n++ {
		if _, err := io.ReadFull(w.r, w.frame); errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("read %s: %w", path, err)
		}
		if n == 1 && !sound {
			copy(w.salt[:], w.frame[8:16]) // the frames may still tell what the header doesn't
		}
		sound = sound && w.follows()
		if !sound && w.commits() {
			broken++
		}
		if broken > 1 {
			return fmt.Errorf("%w: its write-ahead log %s is destroyed at page %d, and holds commits after it; restore the store from a backup", ErrDamaged, path, n)
		}
	}
}

// header tells whether the log's header is sound. If it is not, the log is taken to have pages of the default size.
func (w *walReader) header() (sound bool, err error) {
	head := make([]byte, walHeaderSize)
	if _, err := io.ReadFull(w.r, head); err != nil {
		return false, err
	}
	copy(w.salt[:], head[16:24])
	w.order = binary.LittleEndian
	magic := binary.BigEndian.Uint32(head)
	if magic&1 == 1 {
		w.order = binary.BigEndian
	}
	w.add(head[:24])
	sound = magic&^1 == walMagic && w.sum == sums(head[24:])
	size := binary.BigEndian.Uint32(head[8:])
	if !sound || size < 512 || size > 1<<16 {
		size, sound = 4096, false
	}
	w.frame = make([]byte, walFrameSize+int(size))
	return sound, nil
}

// follows tells whether the frame continues what was read before.
func (w *walReader) follows() bool {
	w.add(w.frame[:8])
	w.add(w.frame[walFrameSize:])
	return [8]byte(w.frame[8:16]) == w.salt && w.sum == sums(w.frame[16:24])
}

// commits tells whether the frame ends a transaction of this log; frames of the log's former use have another salt.
func (w *walReader) commits() bool {
	return [8]byte(w.frame[8:16]) == w.salt && w.salt != [8]byte{} && binary.BigEndian.Uint32(w.frame[4:]) != 0
}

func (w *walReader) add(b []byte) {
	for ; len(b) >= 8; b = b[8:] {
		w.sum[0] += w.order.Uint32(b) + w.sum[1]
		w.sum[1] += w.order.Uint32(b[4:]) + w.sum[0]
	}
}

func sums(b []byte) [2]uint32 {
	return [2]uint32{binary.BigEndian.Uint32(b), binary.BigEndian.Uint32(b[4:])}
}
