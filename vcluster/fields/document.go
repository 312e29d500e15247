// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package fields

import (
	"bytes"
	"encoding/json"
)

const (
	// maxLevels is how deep JSON may be for an API server. What is deeper is refused by it.
	maxLevels = 10_000
	// maxName is how much is kept of a name: more than those have that are known, even if each character is an escape.
	maxName = 128
	// indexBytes is what an element of a list takes in a path.
	indexBytes = 8
	// inMetadata is how many objects are open in an object's metadata.
	inMetadata = 2
)

// Document is JSON that is written to it, of which the fields count. It is not safe for concurrent use.
type Document struct {
	count Count
	// patch says that it is a JSON patch, whose values may be meant for any field.
	patch bool

	open              []container
	inString, escaped bool
	isName            bool   // the string that is being read is the name of a field
	name              []byte // of the field that is being read, as it is written
	nameBytes         int64
}

// container is an object or a list that is open.
type container struct {
	list    bool
	managed bool // it is an entry of managedFields, or in one
	named   bool // the name of the current field has been read
	length  int64
	path    int64 // bytes of the path of it
	current int64 // bytes of the path of the current field
	name    string
}

// NewDocument returns an empty document. That of a JSON patch is no object itself.
func NewDocument(patch bool) *Document { return &Document{patch: patch} }

// Count of what has been written.
func (d *Document) Count() Count { return d.count }

func (d *Document) Write(p []byte) (int, error) {
	for _, c := range p {
		d.add(c)
	}
	return len(p), nil
}

func (d *Document) add(c byte) {
	switch {
	case d.inString:
		d.addToString(c)
	case c == ' ', c == '\n', c == '\r', c == '\t':
	case c == '}', c == ']':
		d.close()
	case c == ',':
		if in := d.inner(); in != nil {
			in.named = false
			in.current = in.path
		}
	case c == ':':
	default:
		d.begin(c)
	}
}

func (d *Document) inner() *container {
	if len(d.open) == 0 {
		return nil
	}
	return &d.open[len(d.open)-1]
}

// begin is called with each byte that may begin a name or a value, and with the further bytes of a number or a word.
func (d *Document) begin(c byte) {
	in := d.inner()
	if in != nil && !in.named {
		in.named = true
		in.length++
		if in.list {
			in.current = in.path + indexBytes
		}
		if in.managed {
			d.count.managed = max(d.count.managed, in.length)
		} else {
			d.count.addElement(in.current, in.length, in.name)
		}
		if !in.list && c == '"' {
			d.inString, d.isName = true, true
			d.name, d.nameBytes = d.name[:0], 0
			return
		}
	}
	switch c {
	case '"':
		d.inString, d.isName = true, false
	case '{', '[':
		d.push(c == '[')
	}
}

func (d *Document) addToString(c byte) {
	switch {
	case d.escaped:
		d.escaped = false
	case c == '\\':
		d.escaped = true
	case c == '"':
		d.inString = false
		if d.isName {
			d.endName()
		}
		return
	}
	if d.isName {
		d.nameBytes++
		if len(d.name) < maxName {
			d.name = append(d.name, c)
		}
	}
}

func (d *Document) endName() {
	in := d.inner()
	if in == nil {
		return
	}
	in.current = in.path + d.nameBytes + 1
	if !in.managed {
		d.count.addPath(d.nameBytes + 1)
	}
	if d.patch {
		switch d.text() {
		case "uid":
			d.count.owners++
		case "fieldsType":
			d.count.managers++
		}
	}
}

// text of the name that was read last.
func (d *Document) text() string {
	if !bytes.ContainsRune(d.name, '\\') {
		return string(d.name)
	}
	var s string
	if json.Unmarshal([]byte(`"`+string(d.name)+`"`), &s) != nil {
		return string(d.name)
	}
	return s
}

func (d *Document) push(list bool) {
	if len(d.open) == maxLevels {
		return
	}
	next := container{list: list}
	if in := d.inner(); in != nil {
		next.path = in.current
		next.name = in.name
		if !in.list {
			next.name = d.text()
		}
		next.managed = in.managed || d.inMetadata(len(d.open)-1) && in.name == "managedFields"
	}
	next.current = next.path
	d.open = append(d.open, next)
}

// inMetadata reports whether what is open at a level is a field of the object's metadata.
func (d *Document) inMetadata(level int) bool {
	return !d.patch && level == inMetadata && d.open[1].name == "metadata"
}

func (d *Document) close() {
	last := len(d.open) - 1
	if last < 0 {
		return
	}
	if c := d.open[last]; c.list && d.inMetadata(last) {
		switch c.name {
		case "ownerReferences":
			d.count.owners += c.length
		case "managedFields":
			d.count.managers += c.length
		}
	}
	d.open = d.open[:last]
}
