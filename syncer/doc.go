// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package syncer keeps one space and its host namespace alike: what a tenant
// wrote goes to the host, what the host says of it comes back. Shards
// run one [Syncer] for each space and one [Host] for each process.
//
// This package puts together what is below it, top to bottom:
//
//   - pods, services, storage, and classes declare the resources: a file each, or one for what belongs together.
//   - engine does what is the same for all resources. Its documentation is the contract between the two sides.
//   - hostcache holds the host's objects for all spaces of a process.
//   - resources describes each resource that is synced: its sync option, its type, its watch, and the rights it takes.
//
// # At rest and asleep
//
// A syncer with nothing to do runs no goroutine but those of its watches. Config
// maps and secrets are not held but read when a pod refers to them. A space
// without requests, whose syncer is [Syncer.Idle], can be put to sleep: the
// syncer is stopped, and [hostcache.Host.OnChange] says when it is wanted again, beside
// [Syncer.NextTimer]. A syncer that is begun anew catches up with all that
// happened on both sides.
//
// Host objects are written as the space's own service account, which can reach
// nothing but the space's namespace and, where the admin lets tenants have
// classes of their own on the host, those classes; they are read from watches
// that all spaces of a shard share.
//
// The host objects of a disabled resource are deleted, but for data: see [resources.Resource.Lasts].
//
// The package makes no HTTP handlers and no certificates.
package syncer
