// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package etcd keeps the rows of a store in an etcd server, under a prefix of keys that is the space's own. kine/mirror has the
// rest of such a store.
//
// The keys under the prefix are:
//
//	meta                     who has the store, and its state; each change compares it, and writes it
//	rows/GENERATION/KEY      the current version of a key of the space
//	files/SET/PART           the files of the space, in parts
//
// A change is one transaction, so it takes effect as a whole or not at all, and not if meta is another one than the process has
// last written.
package etcd
