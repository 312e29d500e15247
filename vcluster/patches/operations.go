// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package patches

// operations counts what is in a JSON patch: an array of objects, each an operation.
type operations struct {
	changes int64 // that may add elements to lists, or remove them
	moves   int64 // that have a member besides op, path and value, which may be from
	tests   bool  // whether a value may be compared, which descends as deep as the value is
	deepest int64 // levels of a path

	member []byte // the name of the operation's member that is being read, as it is written
	op     []byte // the member's value, if its name is op
	value  bool   // the string that is being read is the member's value
	levels int64  // of that value, as a path
}

const (
	// inOperation is how many arrays and objects are open in an operation.
	inOperation = 2
	// maxName is longer than the names of members and operations that are known.
	maxName = 8
)

// add counts a byte that was added to the patch's text. The last token before it was before.
func (o *operations) add(t *text, inString bool, before, c byte) {
	if len(t.lengths) != inOperation {
		return
	}
	switch {
	case !inString && t.inString:
		o.value, o.levels, o.op = before == ':', 0, o.op[:0]
		if !o.value {
			o.member = o.member[:0]
		}
	case inString && !t.inString:
		o.end()
	case inString && !o.value:
		o.member = name(o.member, c)
	case inString:
		o.op = name(o.op, c)
		if c == '/' || c == '\\' { // an escape may stand for a slash
			o.levels++
		}
	}
}

func name(n []byte, c byte) []byte {
	if len(n) < maxName {
		n = append(n, c)
	}
	return n
}

// end ends a string.
func (o *operations) end() {
	switch member := string(o.member); {
	case member == "value":
	case member == "op" && o.value:
		o.endOp()
	case o.value:
		o.deepest = max(o.deepest, o.levels)
	case member == "from":
		o.moves++
	case member != "op" && member != "path": // it may be written with escapes, and be any
		o.moves++
		o.changes++
		o.tests = true
	}
}

// endOp ends the name of an operation.
func (o *operations) endOp() {
	switch string(o.op) {
	case "replace":
	case "test":
		o.tests = true
	case "add", "remove", "move", "copy":
		o.changes++
	default: // it may be written with escapes
		o.changes++
		o.tests = true
	}
}
