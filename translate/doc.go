// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package translate holds the pure functions that turn a space's objects into
// host objects and the host's answers back into what a tenant may see: names,
// labels, selectors, references, statuses. Pods, and messages about them, are in
// package pod.
//
// A virtual object is what the tenant wrote in its space; a host object is its
// counterpart in the space's namespace on the shared cluster. Two properties
// hold for every function here and are tested as such: no two virtual objects
// ever share a host object (S3), and no host object refers to anything outside
// the space that it was made for.
//
// The syncer calls this package; it never calls back: no client, no clock, no
// I/O. All functions are safe for concurrent use and never change their
// arguments.
package translate
