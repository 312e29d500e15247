// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package nats keeps the rows of a store in NATS JetStream, in a stream that is the space's own. kine/mirror has the rest of such
// a store.
//
// The stream keeps the last message of each subject:
//
//	STREAM.meta                      a change of who has the store, or of its state
//	STREAM.rows.GENERATION.KEY       the current version of a key of the space, or that it was deleted
//	STREAM.files.SET.PART            the files of the space, in parts
//
// A header of each message has the state after it, so the last message of the stream has the current one. A change is one
// message, or an atomic batch of messages. The first message names the sequence number of the last message that the process
// knows, so a change takes effect as a whole or not at all, and not after that of another process.
//
// A message about a deletion is deleted later. The last message of the stream never is.
package nats
