// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package translate contains pure functions that turn a space's objects into host objects, and the host's answers into
// what a tenant may see: names, labels, selectors, references, and statuses. Pods, and messages about them, are in
// package pod.
//
// A virtual object is an object in a space. A host object is its counterpart in the space's namespace on the host.
// Every function keeps two invariants, and tests check them: no two virtual objects share a host object (S3), and no
// host object refers to anything outside its space.
//
// The syncer calls this package. It has no client, no clock, and no I/O. All functions are safe for concurrent use, and
// never change their arguments.
package translate
