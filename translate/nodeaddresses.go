// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package translate

import "slices"

// AddressSet reports whether an address, or a host name, is in a set.
type AddressSet func(address string) bool

// withoutNodes leaves out of a status what is reached at an address of a host's node
// (N1). Some controllers publish their nodes' addresses, in place of one of their own.
func withoutNodes[T any](s Space, list []T, nodes AddressSet, addresses func(T) []string) []T {
	if s.Settings.ShowNodeAddresses || nodes == nil {
		return list
	}
	return slices.DeleteFunc(list, func(item T) bool { return slices.ContainsFunc(addresses(item), nodes) })
}
