// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package requests

import (
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
)

const (
	// elementBytes is about what an element of a JSON document takes once it is decoded, twice, as an API server holds the
	// object in two versions. A container that is left empty, which takes three bytes in a document, has 700.
	elementBytes = 1600
	// textBytes is what any other byte of a document takes: as it is read, decoded, and encoded.
	textBytes = 3
	// opaqueBytes is what a byte takes of a document that is not looked into. An API server does not decode these.
	opaqueBytes = 100
)

// DocumentSize estimates what a document will take once it is decoded, while it is read.
type DocumentSize interface {
	// Add returns by how much the estimate grows with more of the document, or why the document is refused.
	Add(p []byte) (int64, error)
}

// newDocumentSize chooses by what is before the parameters of a content type, in any case, as an API server does.
func newDocumentSize(contentType string) DocumentSize {
	media, _, _ := strings.Cut(contentType, ";")
	media = strings.ToLower(strings.TrimSpace(media))
	switch {
	case media == "", strings.HasSuffix(media, "json"):
		return &JSONSize{}
	case media == runtime.ContentTypeProtobuf:
		return newProtobufSize()
	case strings.HasSuffix(media, "yaml"):
		return &yamlSize{json: true, before: '\n'}
	}
	return opaqueSize{}
}

type opaqueSize struct{}

func (opaqueSize) Add(p []byte) (int64, error) { return opaqueBytes * int64(len(p)), nil }

// JSONSize counts the elements of a JSON document.
type JSONSize struct{ InString, escaped bool }

// Add returns by how much the estimate grows.
func (d *JSONSize) Add(p []byte) (int64, error) {
	size := textBytes * int64(len(p))
	for _, c := range p {
		switch {
		case d.escaped:
			d.escaped = false
		case d.InString:
			d.escaped, d.InString = c == '\\', c != '"'
		case c == '"':
			d.InString = true
		case c == ',', c == '{', c == '[':
			size += elementBytes
		}
	}
	return size, nil
}

// nodeBytes is what an element of a YAML document takes besides, as it is parsed to a tree and becomes JSON first.
const nodeBytes = 800

var errAliases = apierrors.NewBadRequest(
	"the body is YAML with aliases (*name), which may stand for much more than was sent: send JSON, or YAML without aliases")

// yamlSize counts what may be elements of a YAML document. Most that are called so are JSON, as those of server-side apply:
// it takes a document for JSON up to a byte that JSON can't have there. From then on strings are not distinguished from the rest.
type yamlSize struct {
	json    bool
	strings JSONSize
	token   byte // the last that is no space, outside of strings
	before  byte
	before2 byte
	anchors bool
}

func (d *yamlSize) Add(p []byte) (int64, error) {
	size := textBytes * int64(len(p))
	for _, c := range p {
		if d.json && !d.isJSON(c) {
			d.json = false
		}
		if d.json {
			n, _ := d.strings.Add([]byte{c})
			size += n
			if n > textBytes {
				size += nodeBytes
			}
			continue
		}
		switch {
		case startsNode(d.before2) && d.before == '&' && inName(c):
			d.anchors = true
		case startsNode(d.before2) && d.before == '*' && inName(c) && d.anchors:
			return 0, errAliases
		}
		switch {
		case c == ',', c == '{', c == '[', breaksLine(c), (c == '-' || c == '?') && startsNode(d.before):
			size += elementBytes + nodeBytes
		}
		d.before2, d.before = d.before, c
	}
	return size, nil
}

// isJSON reports whether c may come next in JSON, and must mean the same in YAML.
func (d *yamlSize) isJSON(c byte) bool {
	if d.strings.InString {
		return true
	}
	if c == ' ' || c == '\n' || c == '\r' || c == '\t' {
		return true
	}
	last := d.token
	d.token = c
	switch {
	case last == 0:
		return c == '{'
	case c == '"': // in a plain scalar a quote is text
		return strings.IndexByte("{[,:", last) >= 0
	case strings.IndexByte("{}[],:+-.", c) >= 0:
		return true
	}
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
}

func startsNode(before byte) bool {
	return strings.IndexByte(" \t,:?-[{", before) >= 0 || breaksLine(before)
}

// breaksLine also takes the bytes that line breaks beyond ASCII end with.
func breaksLine(c byte) bool {
	return c == '\n' || c == '\r' || c == 0x85 || c == 0xa8 || c == 0xa9
}

func inName(c byte) bool {
	return c == '-' || c == '_' || '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
}
