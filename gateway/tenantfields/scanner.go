// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package tenantfields

import (
	"bytes"
	"encoding/json"
)

// role is what an object or an array of a document is for.
type role uint8

const (
	nothing    role = iota // of no interest, with all that it contains
	watchEvent             // an event of a watch, with an API object
	apiObject
	apiList
	listItems
	tableRows
	tableRow
	metadata // of an API object or of a list
)

// member is a member of an object that matters.
type member uint8

const (
	otherMember member = iota
	metadataMember
	itemsMember
	objectMember
	rowsMember
	kindMember
	apiVersionMember
	nameMember
	namespaceMember
	tenantMember
)

// memberOf returns the member with a name. API servers distinguish upper case from lower case, too.
func memberOf(name []byte) member {
	switch string(name) {
	case "metadata":
		return metadataMember
	case "items":
		return itemsMember
	case "object":
		return objectMember
	case "rows":
		return rowsMember
	case "kind":
		return kindMember
	case "apiVersion":
		return apiVersionMember
	case "name":
		return nameMember
	case "namespace":
		return namespaceMember
	case "tenant":
		return tenantMember
	}
	return otherMember
}

const (
	// maxLevels is how many levels matter: an event has a table, this has rows, and these have objects with metadata.
	maxLevels = 8
	// maxString is how long a name, or another string that matters, may be. Longer ones count as empty.
	maxString = 1 << 10
)

// level is an object or an array that matters.
type level struct {
	role  role
	array bool
	// member is the last member of an object; members reports whether there is any.
	member  member
	members bool
	// Strings without escapes: of an API object or a list, and of its metadata.
	kind, apiVersion, name, namespace []byte
}

func (l *level) isStatus() bool {
	return string(l.kind) == "Status" && string(l.apiVersion) == "v1"
}

func (l *level) isTable() bool {
	return string(l.kind) == "Table" && bytes.HasPrefix(l.apiVersion, []byte("meta.k8s.io/"))
}

// inString is what a string is, inside which the scanner is.
type inString uint8

const (
	noString inString = iota
	keyString
	keptString // a value that matters
	otherString
)

// scanner finds the metadata of API objects in JSON documents, one byte after the other. It does not validate documents: in an
// invalid one, it finds anything or nothing. Its memory is bounded, however deep and long documents are.
type scanner struct {
	root      role // of each document
	levels    [maxLevels]level
	depth     int // levels in use
	nested    int // objects and arrays that are open inside the innermost level and don't matter
	in        inString
	escaped   bool // the last byte was a backslash in a string
	expectKey bool // the next string of the innermost level is a key
	kept      []byte
	tooLong   bool
}

// inMetadata reports whether the next byte belongs to metadata itself, and neither to an object or an array in it, nor to a string.
func (s *scanner) inMetadata() bool {
	return s.in == noString && s.nested == 0 && s.depth > 0 && s.levels[s.depth-1].role == metadata
}

// skip returns how many of the next bytes don't change the state.
func (s *scanner) skip(p []byte) int {
	switch {
	case s.escaped:
		return 0
	case s.in == otherString:
		for i, c := range p {
			if c == '"' || c == '\\' {
				return i
			}
		}
		return len(p)
	case s.in == noString && s.nested > 0:
		for i, c := range p {
			switch c {
			case '"', '{', '}', '[', ']':
				return i
			}
		}
		return len(p)
	}
	return 0
}

// step reads a byte.
func (s *scanner) step(c byte) {
	if s.in != noString {
		s.inside(c)
		return
	}
	switch c {
	case '"':
		s.begin()
	case '{', '[':
		s.open(c == '[')
	case '}', ']':
		s.close()
	case ',':
		if s.nested == 0 && s.depth > 0 {
			s.expectKey = !s.levels[s.depth-1].array
		}
	case ':':
		if s.nested == 0 {
			s.expectKey = false
		}
	}
}

// begin begins a string.
func (s *scanner) begin() {
	s.in = otherString
	if s.nested > 0 || s.depth == 0 {
		return
	}
	l := &s.levels[s.depth-1]
	switch {
	case s.expectKey && !l.array:
		s.in = keyString
		l.member, l.members = otherMember, true
	case l.role == metadata && (l.member == nameMember || l.member == namespaceMember),
		(l.role == apiObject || l.role == apiList) && (l.member == kindMember || l.member == apiVersionMember):
		s.in = keptString
	}
	s.kept, s.tooLong = s.kept[:0], false
}

// inside reads a byte of a string.
func (s *scanner) inside(c byte) {
	switch {
	case s.escaped:
		s.escaped = false
	case c == '\\':
		s.escaped = true
	case c == '"':
		s.end()
		return
	}
	if s.in == otherString {
		return
	}
	if len(s.kept) >= maxString {
		s.tooLong = true
		return
	}
	s.kept = append(s.kept, c)
}

// end ends a string.
func (s *scanner) end() {
	in := s.in
	s.in = noString
	if in == otherString {
		return
	}
	text := unescaped(s.kept)
	if s.tooLong {
		text = nil
	}
	l := &s.levels[s.depth-1]
	if in == keyString {
		l.member, s.expectKey = memberOf(text), false
		return
	}
	switch l.member {
	case kindMember:
		l.kind = append(l.kind[:0], text...)
	case apiVersionMember:
		l.apiVersion = append(l.apiVersion[:0], text...)
	case nameMember:
		l.name = append(l.name[:0], text...)
	case namespaceMember:
		l.namespace = append(l.namespace[:0], text...)
	}
}

// unescaped returns the text of a string; nil if its escapes are invalid.
func unescaped(raw []byte) []byte {
	if bytes.IndexByte(raw, '\\') < 0 {
		return raw
	}
	var text string
	if json.Unmarshal(append(append([]byte{'"'}, raw...), '"'), &text) != nil {
		return nil
	}
	return []byte(text)
}

// open opens an object or an array.
func (s *scanner) open(array bool) {
	r := nothing
	if s.nested == 0 && s.depth < maxLevels {
		r = s.child(array)
	}
	if r == nothing {
		s.nested++
		return
	}
	l := &s.levels[s.depth]
	*l = level{role: r, array: array, kind: l.kind[:0], apiVersion: l.apiVersion[:0], name: l.name[:0], namespace: l.namespace[:0]}
	s.depth++
	s.expectKey = !array
}

// child returns the role of what is opened now.
func (s *scanner) child(array bool) role {
	if s.depth == 0 {
		return only(!array, s.root)
	}
	l := &s.levels[s.depth-1]
	if s.expectKey && !l.array {
		return nothing // not valid
	}
	switch l.role {
	case watchEvent, tableRow:
		return only(!array && l.member == objectMember, apiObject)
	case listItems:
		return only(!array, apiObject)
	case tableRows:
		return only(!array, tableRow)
	case apiObject, apiList:
		switch {
		case l.member == metadataMember:
			return only(!array, metadata)
		case l.member == itemsMember && l.role == apiList:
			return only(array, listItems)
		case l.member == rowsMember && l.isTable():
			return only(array, tableRows)
		}
	}
	return nothing
}

func only(ok bool, r role) role {
	if !ok {
		return nothing
	}
	return r
}

// close closes an object or an array.
func (s *scanner) close() {
	switch {
	case s.nested > 0:
		s.nested--
	case s.depth > 0:
		s.depth--
		s.expectKey = false
	}
}
