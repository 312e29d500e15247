// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package netrange lists the address ranges that are closed to tenants: what their
// pods reach, what a resolver answers them, and what the host's admission lets
// spaces' accounts write is made of the same list.
package netrange

import "net/netip"

// Private are the ranges of networks of one's own. Pods and nodes of the host, of
// all spaces, have addresses in them.
func Private() []netip.Prefix {
	return prefixes(
		"10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", // RFC 1918
		"100.64.0.0/10", // between a provider and its customers (RFC 6598); some clusters have their pods there
		"fc00::/7",      // RFC 4193
	)
}

// Special are the ranges whose addresses mean something to a machine or to its
// network only, and those that lead to IPv4 addresses of whatever kind.
func Special() []netip.Prefix {
	return append(Unroutable(), prefixes(
		"198.18.0.0/15", // benchmarks (RFC 2544)
		"240.0.0.0/4",   // reserved, and broadcast
	)...)
}

// Unroutable are those of the special ranges that no pod has addresses in, on any
// host: some clusters run short of private addresses, and take theirs from the
// ranges for benchmarks or the reserved ones.
func Unroutable() []netip.Prefix {
	return prefixes(
		"0.0.0.0/8", "127.0.0.0/8", "169.254.0.0/16", // this host, and links: metadata services of clouds
		"168.63.129.16/32",               // the metadata service and DNS of Azure
		"192.0.0.0/24",                   // IETF protocols (RFC 6890): the metadata service of Oracle's cloud
		"224.0.0.0/4",                    // multicast
		"::/96",                          // unspecified, loopback, and IPv4-compatible
		"64:ff9b::/96", "64:ff9b:1::/48", // translation to IPv4 (RFC 6052, RFC 8215)
		"2001::/32", "2002::/16", // tunnels to IPv4: Teredo, 6to4
		"fe80::/10", "fec0::/10", "ff00::/8", // links, sites, multicast
	)
}

// Closed are all ranges that are closed to every tenant.
func Closed() []netip.Prefix { return append(Private(), Special()...) }

// Strings are ranges in CIDR form.
func Strings(ranges []netip.Prefix) []string {
	out := make([]string, 0, len(ranges))
	for _, r := range ranges {
		out = append(out, r.String())
	}
	return out
}

func prefixes(all ...string) []netip.Prefix {
	out := make([]netip.Prefix, 0, len(all))
	for _, text := range all {
		out = append(out, netip.MustParsePrefix(text))
	}
	return out
}
