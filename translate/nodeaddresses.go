// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package translate

import "slices"

// AddressSet reports whether an address, or a host name, is in a set.
type AddressSet func(address string) bool

// withoutNodes removes the entries of a status that have an address of a host's node (N1). Some controllers publish the
// addresses of nodes instead of an address of their own.
func withoutNodes[T any](s Space, list []T, nodes AddressSet, addresses func(T) []string) []T {
	if s.Settings.ShowNodeAddresses || nodes == nil {
		return list
	}
	return slices.DeleteFunc(list, func(item T) bool { return slices.ContainsFunc(addresses(item), nodes) })
}
