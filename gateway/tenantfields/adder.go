// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package tenantfields

import "bytes"

// maxIndent is how long an indentation may be that added members get, too.
const maxIndent = 64

// adder adds tenant and selfLink at the end of the metadata of each API object and list in JSON documents. All other bytes are
// unchanged, whatever the documents are. At the end, because it then knows name and namespace, and because decoders take the
// last of two members with the same name.
type adder struct {
	scanner
	tenant string
	links  links
	out    []byte
}

// maxOut is how long a result of [adder.add] is before it is returned, apart from the part itself: objects may be as short as what is
// added to them, and much shorter.
const maxOut = 64 << 10

// add returns a part of the documents with what is to be added to it, and the rest of the part, for the next call. The result is valid
// until then.
func (a *adder) add(part []byte) (changed, rest []byte) {
	a.out = a.out[:0]
	for len(part) > 0 && len(a.out) < maxOut {
		n := a.skip(part)
		a.out = append(a.out, part[:n]...)
		if part = part[n:]; len(part) == 0 {
			break
		}
		if part[0] == '}' && a.inMetadata() {
			a.addTo(&a.levels[a.depth-2], &a.levels[a.depth-1])
		}
		a.step(part[0])
		a.out = append(a.out, part[0])
		part = part[1:]
	}
	return a.out, part
}

// addTo adds the members of an API object or a list, whose metadata ends here.
func (a *adder) addTo(o, meta *level) {
	if o.isStatus() {
		return // the answer to a request, and no object
	}
	before := bytes.TrimRight(a.out, " \n")
	var buffer [maxIndent]byte
	var indent, colon string
	if end := a.out[len(before):]; meta.members && len(end) > 0 && len(end) <= maxIndent {
		// The document is indented. What comes before the brace is moved behind the members.
		indent, colon = string(buffer[:copy(buffer[:], end)]), " "
		a.out = before
	}
	comma := ""
	if meta.members {
		comma = ","
	}
	a.member(comma, indent, "tenant", colon, a.tenant)
	if link := a.links.of(o.role, string(meta.name), string(meta.namespace)); link != "" {
		a.member(",", indent, "selfLink", colon, link)
	}
	a.out = append(a.out, indent...)
}

// member adds a member. Neither names of tenants nor paths have characters that need escapes.
func (a *adder) member(comma, indent, name, colon, value string) {
	a.out = append(a.out, comma...)
	a.out = append(a.out, indent...)
	if indent != "" {
		a.out = append(a.out, "  "...) // the indentation of API servers
	}
	for _, s := range [...]string{`"`, name, `":`, colon, `"`, value, `"`} {
		a.out = append(a.out, s...)
	}
}
