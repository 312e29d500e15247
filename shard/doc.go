// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package shard runs many spaces in one process: for each its control plane
// and its syncer, over one set of host watches for all. Commands and the
// gateway call it; who may have which space is not its business.
package shard
