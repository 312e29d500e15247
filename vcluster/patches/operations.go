// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package patches

// operations counts what is in a JSON patch: an array of objects, each an operation.
type operations struct {
	number  int64
	moves   int64 // that have a member besides op, path and value, which may be from
	deepest int64 // levels of a path

	member []byte // the name of the operation's member that is being read, as it is written
	value  bool   // the string that is being read is the member's value
	levels int64  // of that value, as a path
}

const (
	// inOperation is how many arrays and objects are open in an operation.
	inOperation = 2
	// maxMember is longer than the names of members that are known.
	maxMember = 8
)

// add counts a byte that was added to the patch's text. The last token before it was before.
func (o *operations) add(t *text, inString bool, before, c byte) {
	if len(t.lengths) != inOperation {
		return
	}
	switch {
	case !inString && c == '{':
		o.number++
	case !inString && t.inString:
		o.value, o.levels = before == ':', 0
		if !o.value {
			o.member = o.member[:0]
		}
	case inString && !t.inString:
		o.end()
	case inString && !o.value:
		if len(o.member) < maxMember {
			o.member = append(o.member, c)
		}
	case inString && (c == '/' || c == '\\'): // an escape may stand for a slash
		o.levels++
	}
}

// end ends a string.
func (o *operations) end() {
	switch string(o.member) {
	case "op", "value":
	case "path":
		if o.value {
			o.deepest = max(o.deepest, o.levels)
		}
	default:
		if o.value {
			o.deepest = max(o.deepest, o.levels)
		} else {
			o.moves++
		}
	}
}
