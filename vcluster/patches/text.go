// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package patches

// maxLevels is how deep JSON may be for an API server. What is deeper is refused by it.
const maxLevels = 10_000

// text counts what is in JSON.
type text struct {
	bytes   int64
	outer   int64 // levels of objects that are in no array
	nested  int64 // each byte, as often as it is in a value
	deepest int64 // levels
	longest int64 // elements of an array
	squares int64 // of the lengths of all arrays

	lengths           []int64 // of the arrays and objects that are open: of objects -1
	arrays            int     // of them
	inString, escaped bool
	token             byte // the last outside of strings that is no space; a string counts as its first quote
}

func (t *text) add(c byte) {
	t.bytes++
	t.nested += int64(len(t.lengths))
	switch {
	case t.escaped:
		t.escaped = false
	case t.inString:
		t.escaped, t.inString = c == '\\', c != '"'
	case c == ' ', c == '\n', c == '\r', c == '\t':
	default:
		t.next(c)
		t.token = c
	}
}

func (t *text) next(c byte) {
	switch c {
	case '"':
		t.inString = true
	case '[':
		t.open(1)
	case '{':
		t.open(-1)
	case ',':
		if last := len(t.lengths) - 1; last >= 0 && t.lengths[last] > 0 {
			t.lengths[last]++
		}
	case ']', '}':
		t.close()
	}
}

func (t *text) open(length int64) {
	if len(t.lengths) == maxLevels {
		return
	}
	t.lengths = append(t.lengths, length)
	t.deepest = max(t.deepest, int64(len(t.lengths)))
	if length > 0 {
		t.arrays++
	} else if t.arrays == 0 {
		t.outer = max(t.outer, int64(len(t.lengths)))
	}
}

func (t *text) close() {
	last := len(t.lengths) - 1
	if last < 0 {
		return
	}
	if n := t.lengths[last]; n > 0 {
		t.arrays--
		t.longest = max(t.longest, n)
		t.squares += n * n
	}
	t.lengths = t.lengths[:last]
}
