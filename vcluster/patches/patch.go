// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package patches

import (
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-dev/berth/bounds"
)

// Patch is what counts of a patch. It is not safe for concurrent use.
type Patch struct {
	kind       types.PatchType
	text       text
	operations operations // of a JSON patch
}

// Type is the type of patch that a content type says.
func Type(contentType string) types.PatchType {
	media, _, _ := strings.Cut(contentType, ";")
	return types.PatchType(strings.ToLower(strings.TrimSpace(media)))
}

// New returns an empty patch. Of a type that is none of JSON patch, merge patch, and strategic merge patch nothing is counted: its
// cost is bounded by its length.
func New(t types.PatchType) *Patch { return &Patch{kind: t} }

func (p *Patch) counts() bool {
	return p.kind == types.JSONPatchType || p.kind == types.MergePatchType || p.kind == types.StrategicMergePatchType
}

// Add counts more of the patch's text.
func (p *Patch) Add(more []byte) {
	if !p.counts() {
		return
	}
	for _, c := range more {
		inString, before := p.text.inString, p.text.token
		p.text.add(c)
		if p.kind == types.JSONPatchType {
			p.operations.add(&p.text, inString, before, c)
		}
	}
}

const (
	// copyBytes is how many bytes an API server lets the copy operations of a JSON patch add.
	copyBytes = 3 << 20
	// copies is how often a value is in memory for each level: as it was read, and as it is written.
	copies = 3
	// comparisons is how many steps it takes to sort a list of an object and one of a patch as one, for each two of their elements.
	comparisons = 4
)

// Steps is about how many steps it takes to apply the patch to an object, of 10 to 30 ns each on a slow and busy machine.
//
// A JSON patch copies an array for each element that it adds or removes. JSON patches and merge patches scan a value once for
// each level that they descend into it. A strategic merge patch sorts lists by comparing each of their elements with all
// others.
func (p *Patch) Steps(object Shape) int64 {
	if !p.counts() {
		return 0
	}
	if p.kind == types.StrategicMergePatchType {
		if p.text.squares == 0 { // it merges no list
			return 0
		}
		return comparisons * (p.text.squares + object.Squares)
	}
	steps := p.scanned(object)
	if p.kind == types.JSONPatchType {
		n := p.operations.changes
		steps += n * (object.Longest + p.text.longest + n)
	}
	return steps
}

// Memory is about how many bytes a patch holds while it is applied to an object: copies of a value for each level.
func (p *Patch) Memory(object Shape) int64 {
	if !p.counts() || p.kind == types.StrategicMergePatchType {
		return 0 // it was accounted as its text was read
	}
	return copies * p.scanned(object)
}

// scanned is how many bytes are scanned, those of deep values several times.
func (p *Patch) scanned(object Shape) int64 {
	if p.kind == types.MergePatchType {
		return p.text.nested + p.text.outer*object.Bytes
	}
	o := &p.operations
	values := object.Bytes + p.text.bytes
	values += min(copyBytes, o.moves*values)
	// An operation that moves a value can put it deeper by as many levels as its path has.
	levels := o.deepest
	if o.tests {
		levels += p.text.deepest
	}
	levels *= 1 + o.moves
	return p.text.nested + levels*values
}

// Check returns an error if the patch takes too many steps for an object.
func (p *Patch) Check(object Shape) error { return bounds.PatchSteps.Check(p.Steps(object)) }
