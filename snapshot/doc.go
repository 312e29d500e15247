// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package snapshot stores copies of spaces in a directory or in object storage, and restores spaces from them (D2).
// `berth up` runs a [Keeper] for the spaces of its shard, and the snapshot commands use it.
//
// A snapshot is an archive of a space's store and keys: whoever can read it can impersonate anybody in that space. It
// becomes visible only when it is complete, and has a hash of each of its files.
//
// A space that is restored under its own name is the same space. Under another name, it becomes a new space: see
// [Reidentify].
//
// The package reads the store of a running space only through the space, and does not access the host.
package snapshot
