// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package dns

import (
	"net/netip"
	"slices"

	miekg "github.com/miekg/dns"

	"github.com/berth-dev/berth/internal/netrange"
)

// filter says what the world outside is asked for a tenant, and what of the
// answers the tenant sees. What upstream knows of the host's own networks is not
// for tenants: upstream may well be the host's cluster DNS, or a machine's.
type filter struct {
	domains []string // canonical
	ranges  []netip.Prefix
}

// special are domains that mean something on a network of one's own only (RFC
// 6761, 6762, 7686, 8375; ICANN's .internal). Clouds put their machines there.
func special() []string {
	return []string{"local.", "localhost.", "internal.", "home.arpa.", "invalid.", "onion.", "lan.", "intranet.", "localdomain."}
}

func newFilter(c Config) *filter {
	return &filter{
		domains: slices.Concat([]string{c.Domain}, c.HostDomains, special()),
		ranges:  slices.Concat(netrange.Closed(), c.HostRanges),
	}
}

// hides reports whether a name is not for tenants: in a domain of the host's, or
// of one label only, as machines beside the host's are called.
func (f *filter) hides(name string) bool {
	name = miekg.CanonicalName(name)
	return name != "." && miekg.CountLabel(name) < 2 || f.hidesDomain(name)
}

func (f *filter) hidesDomain(name string) bool {
	return slices.ContainsFunc(f.domains, func(domain string) bool { return miekg.IsSubDomain(domain, name) })
}

// public reports whether an address is one that the world knows. No other can
// be reached under a space's network policies; one in an answer would only tell what
// there is on the host's networks, or make a page of a name's owner speak to it
// (rebinding).
func (f *filter) public(addr netip.Addr) bool {
	if embedded, ok := embedded4(addr); ok {
		addr = embedded
	}
	return addr.IsGlobalUnicast() && !slices.ContainsFunc(f.ranges, func(p netip.Prefix) bool { return p.Contains(addr) })
}

// embedded4 is the IPv4 address that an IPv6 one leads to by translation.
func embedded4(addr netip.Addr) (netip.Addr, bool) {
	if addr.Is4In6() {
		return addr.Unmap(), true
	}
	if addr.Is6() && netip.MustParsePrefix("64:ff9b::/96").Contains(addr) {
		bytes := addr.As16()
		return netip.AddrFrom4([4]byte(bytes[12:])), true
	}
	return addr, false
}

// passes reports whether all of an answer may be seen. If not, the name is as
// good as none: to leave out a part would still tell that there is something.
func (f *filter) passes(records []miekg.RR) bool {
	for _, rr := range records {
		if f.hidesDomain(miekg.CanonicalName(rr.Header().Name)) {
			return false
		}
		var target string
		switch r := rr.(type) {
		case *miekg.A:
			if addr, ok := netip.AddrFromSlice(r.A); !ok || !f.public(addr.Unmap()) {
				return false
			}
		case *miekg.AAAA:
			if addr, ok := netip.AddrFromSlice(r.AAAA); !ok || !f.public(addr) {
				return false
			}
		case *miekg.SVCB:
			if !f.passesHints(r) {
				return false
			}
			target = r.Target
		case *miekg.HTTPS:
			if !f.passesHints(&r.SVCB) {
				return false
			}
			target = r.Target
		case *miekg.CNAME:
			target = r.Target
		case *miekg.DNAME:
			target = r.Target
		case *miekg.PTR:
			target = r.Ptr
		case *miekg.SRV:
			target = r.Target
		case *miekg.MX:
			target = r.Mx
		case *miekg.NS:
			target = r.Ns
		}
		if target != "" && f.hidesDomain(miekg.CanonicalName(target)) {
			return false
		}
	}
	return true
}

// passesHints looks at the addresses that a service binding suggests.
func (f *filter) passesHints(r *miekg.SVCB) bool {
	for _, pair := range r.Value {
		switch hint := pair.(type) {
		case *miekg.SVCBIPv4Hint:
			for _, ip := range hint.Hint {
				if addr, ok := netip.AddrFromSlice(ip); !ok || !f.public(addr.Unmap()) {
					return false
				}
			}
		case *miekg.SVCBIPv6Hint:
			for _, ip := range hint.Hint {
				if addr, ok := netip.AddrFromSlice(ip); !ok || !f.public(addr) {
					return false
				}
			}
		}
	}
	return true
}
