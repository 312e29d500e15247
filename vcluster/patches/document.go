// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package patches

// Document is JSON that is written to it, of which the shape counts.
type Document struct{ text text }

func (d *Document) Write(p []byte) (int, error) {
	for _, c := range p {
		d.text.add(c)
	}
	return len(p), nil
}

// Shape of what has been written.
func (d *Document) Shape() Shape {
	return Shape{Bytes: d.text.bytes, Nested: d.text.nested, Longest: d.text.longest, Squares: d.text.squares}
}
