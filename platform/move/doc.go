// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package move copies the directory of a space, with its store, from one shard to another. Most of the store is copied while the space
// runs; when it has stopped, only the blocks that have changed since follow, so that a large store needs no long stop.
//
// The package copies. Which shard has the space is the word of the status of its Space object, which the sending shard changes when the
// receiving one has everything on disk. What was received is not a space until then: it is in a directory of its own.
package move
