// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package shards gives new spaces a shard, and has spaces move. It is a controller of the operator, and asks package placement what to do.
//
// It writes status.shard of spaces that have no store yet, status.movingTo, and nothing else of a status: from the moment that a space has
// a store in the volume of a shard, only that shard writes status.shard. If the store is in a database server, the operator writes it, too,
// when the shard is dead: the database decides who has the store. Each write fails if the space has changed in the meantime. It does
// nothing for platforms without Shard objects, which serve all their spaces themselves.
package shards
