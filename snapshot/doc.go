// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package snapshot keeps copies of spaces in a directory or in object storage,
// and makes spaces of them again (D2). `berth up` runs a [Keeper] over the spaces
// of its shard; the snapshot commands ask it.
//
// A snapshot is an archive of a space's store and keys: whoever can read it can
// pose as anybody in that space. It appears under its name whole or not at all,
// and says what each of its files hashes to.
//
// Restored under its own name a space is what it was. Under another name it is
// a space of its own: see [Reidentify].
//
// It never reads the store of a running space except through the space, and
// never touches the host.
package snapshot
