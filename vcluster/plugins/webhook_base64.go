// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package plugins

import (
	"strconv"
	"strings"
)

const base64Alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"

// base64Text decodes a string of JSON, as it is written there, from base64, as long as it may be that. As in Go, line breaks
// don't count.
type base64Text struct {
	plain   bool // it is not base64
	escaped bool
	hex     []byte // of an escape with a number; nil outside of one
	bits    uint32
	chars   int
	decoded [3]byte
}

// add returns what a byte of the string completes, which is valid until the next call.
func (t *base64Text) add(c byte) []byte {
	switch {
	case t.plain:
		return nil
	case t.hex != nil:
		if t.hex = append(t.hex, c); len(t.hex) < len("0041") {
			return nil
		}
		n, err := strconv.ParseUint(string(t.hex), 16, 8)
		t.hex = nil
		if err != nil { // it is beyond the alphabet
			t.plain = true
			return nil
		}
		return t.next(byte(n))
	case t.escaped:
		t.escaped = false
		switch c {
		case 'u':
			t.hex = []byte{}
			return nil
		case 'n', 'r':
			return nil
		}
		return t.next(c)
	case c == '\\':
		t.escaped = true
		return nil
	}
	return t.next(c)
}

func (t *base64Text) next(c byte) []byte {
	v := strings.IndexByte(base64Alphabet, c)
	switch {
	case c == '\n', c == '\r':
		return nil
	case c == '=':
		v = 0
	case v < 0:
		t.plain = true
		return nil
	}
	t.bits = t.bits<<6 | uint32(v) //nolint:gosec // it is less than 64
	if t.chars++; t.chars%4 != 0 {
		return nil
	}
	t.decoded = [3]byte{byte(t.bits >> 16), byte(t.bits >> 8), byte(t.bits)} //nolint:gosec // its lowest byte
	return t.decoded[:]
}
