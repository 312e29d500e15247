// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package placement decides which shard gets a space, and which spaces move to another shard. The controller of package shards calls
// it with what it reads from the host, and the simulator of bench/simulate with what it makes up.
//
// It is pure: it has no client, no clock, and no goroutines, and equal arguments have equal results.
package placement
