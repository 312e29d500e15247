// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package syncer keeps one space and its host namespace in sync: tenants' objects are copied to the host, and their
// status is copied back. A shard runs one [Syncer] for each space, and each process has one [Host].
//
// This package connects the packages below it, from top to bottom:
//
// - pods, services, storage, and classes declare the resources. Each resource, or group of related resources, is a
// file.
// - engine does what is the same for all resources. Its documentation is the contract between the two sides.
// - hostcache caches the host's objects for all spaces of a process.
// - resources describes each synced resource: its sync option, its type, its watch, and the rights that it needs.
//
// # Idle and asleep
//
// A syncer without work runs only the goroutines of its watches. It does not cache config maps and secrets, but reads
// them when a pod refers to them. If a space has no requests and its syncer is [Syncer.Idle], the space can be put to
// sleep. The syncer is stopped then. [hostcache.Host.OnChange] and [Syncer.NextTimer] say when the space must wake. A
// new syncer catches up with all changes on both sides.
//
// The syncer writes host objects with the space's own service account. This account can write only in the space's host
// namespace and, if the admin lets tenants export classes, these classes. The syncer reads from watches that all spaces
// of a shard share.
//
// When a resource is disabled, its host objects are deleted, unless they contain data: see [resources.Resource.Lasts].
//
// The package makes no HTTP handlers and no certificates.
package syncer
