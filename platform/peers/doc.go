// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package peers makes several processes the shards of one platform. Each has spaces of its own, and forwards the requests for others. The
// processes know of each other by Shard objects and Leases in a namespace of the host, and trust each other by the CA of the platform's
// endpoint, which they share by a Secret there.
//
// A Lease says only whether a shard is alive. Nothing is safe because of it: the store of a space is in the volume of one shard, which no
// other process has, and what moves it hands it over itself.
package peers
