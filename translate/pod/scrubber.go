// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"net/netip"
	"slices"
	"strings"
)

// hiddenAddress stands for every address in a message but the pod's own.
const hiddenAddress = "host-address"

// scrubber rewrites messages of the host's. It goes over a message once, so that
// what it has put in is never taken for the host's: a tenant could name things
// so as to have its guesses confirmed.
type scrubber struct {
	names     [][2]string // sorted, each once
	addresses map[netip.Addr]string
}

// newScrubber returns one that replaces the first of each pair by the second.
func newScrubber(names [][2]string) *scrubber {
	names = slices.DeleteFunc(names, func(p [2]string) bool { return p[0] == "" })
	slices.SortStableFunc(names, func(a, b [2]string) int { return strings.Compare(a[0], b[0]) })
	names = slices.CompactFunc(names, func(a, b [2]string) bool { return a[0] == b[0] })
	return &scrubber{names: names, addresses: map[netip.Addr]string{}}
}

// tell has addresses replaced by as, or left as they are if as is empty.
func (r *scrubber) tell(as string, addresses ...string) {
	for _, text := range addresses {
		if addr, err := netip.ParseAddr(text); err == nil {
			r.addresses[plainAddr(addr)] = as
		}
	}
}

// scrub replaces names, and all addresses that the tenant does not know of.
func (r *scrubber) scrub(message string) string { return r.rewrite(message, r.address, r.name) }

// scrubNames replaces names only: for the words of the tenant's own processes,
// in which a kubelet may stand, but whose addresses are the tenant's.
func (r *scrubber) scrubNames(message string) string { return r.rewrite(message, r.name) }

// A finder finds a thing to replace at the beginning of text; word says that no
// letter or digit stands before it. It returns the thing's length, or 0.
type finder func(text string, word bool) (length int, replacement string)

func (r *scrubber) rewrite(message string, finders ...finder) string {
	var out strings.Builder
	for i := 0; i < len(message); {
		length := 0
		for _, find := range finders {
			var replacement string
			if length, replacement = find(message[i:], beginsWord(message, i)); length > 0 {
				out.WriteString(replacement)
				break
			}
		}
		if length == 0 {
			length = 1
			out.WriteByte(message[i])
		}
		i += length
	}
	return out.String()
}

// name finds the longest name, so that none is cut by another. One without a dash
// or dot, such as a node's called "web", may be part of ordinary words, and counts
// only as a word of its own: else it would garble the message, and tell what it is
// by where it does.
//
// Tenants choose how many names there are, and what stands in the messages of their
// processes. All names that text begins with also begin the last name that does not
// come after text, so that a few searches find them.
func (r *scrubber) name(text string, word bool) (int, string) {
	for left := text; left != ""; {
		at, found := r.find(left)
		if !found {
			at--
		}
		if at < 0 {
			return 0, ""
		}
		name, replacement := r.names[at][0], r.names[at][1]
		both := commonPrefix(name, left)
		if both == len(name) {
			if strings.ContainsAny(name, "-.") || (word && !continues(text[both:])) {
				return both, replacement
			}
			both--
		}
		left = left[:both]
	}
	return 0, ""
}

// find is where a name is, or would be.
func (r *scrubber) find(name string) (at int, found bool) {
	return slices.BinarySearchFunc(r.names, name, func(p [2]string, name string) int { return strings.Compare(p[0], name) })
}

func commonPrefix(a, b string) int {
	n := 0
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	return n
}

// address finds an IP address, in any of its spellings.
func (r *scrubber) address(text string, word bool) (int, string) {
	if !word {
		return 0, ""
	}
	const longest = len("ffff:ffff:ffff:ffff:ffff:ffff:255.255.255.255")
	end := 0
	for end < min(len(text), longest) && strings.IndexByte("0123456789abcdefABCDEF:.", text[end]) >= 0 {
		end++
	}
	for ; end > 1; end-- { // a port, a colon or a full stop may follow
		if continues(text[end:]) {
			continue
		}
		addr, err := netip.ParseAddr(text[:end])
		if err != nil {
			continue
		}
		addr = plainAddr(addr)
		replacement, known := r.addresses[addr]
		switch {
		case replacement == "" && (known || addr.IsLoopback() || addr.IsUnspecified()):
			replacement = text[:end]
		case replacement == "":
			replacement = hiddenAddress
		}
		return end, replacement
	}
	return 0, ""
}

func plainAddr(addr netip.Addr) netip.Addr { return addr.Unmap().WithZone("") }

// beginsWord reports whether a word may begin at message[i]: also behind a line
// break that was quoted.
func beginsWord(message string, i int) bool {
	if i == 0 || !alphanumeric(message[i-1]) {
		return true
	}
	return i > 1 && message[i-2] == '\\' && strings.IndexByte("nrt", message[i-1]) >= 0
}

func continues(text string) bool { return text != "" && alphanumeric(text[0]) }

func alphanumeric(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
}
