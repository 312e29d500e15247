// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package access decides what a space enforces of its tenant: who its owners are, what they and others may do, and which
// objects each of its namespaces has.
//
// The platform sets the [State] of a space in a [Source]. Packages shard and vcluster read it from there. Except for Source,
// the package consists of pure functions. It has no clients, and doesn't know the API server.
package access
