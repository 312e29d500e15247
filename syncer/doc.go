// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package syncer keeps one space and its host namespace alike: what a tenant
// wrote goes to the host, what the host says of it comes back. Shards
// run one [Syncer] a space and one [hostcache.Host] a process.
//
// # The engine's contract
//
// A resource is declared in a file of its own (pods.go, services.go, ...) as a
// [engine.Resource]: how a virtual object looks on the host (toHost), which fields of
// an existing host object the tenant owns (updateHost), and which of the virtual
// object the host owns (syncStatus). The engine does the rest, the same for all:
//
//   - Work is a key of resource, virtual namespace and name. Events of both sides
//     lead to the same key; reconciling it is level-triggered and idempotent,
//     so that a crash at any instruction is mended by the next run (S7).
//   - A host object is the space's if it bears the space's label and an
//     identity (translate.IdentityOf), and belongs to the virtual object whose
//     UID it records. Anything else is foreign: never written, never deleted;
//     a name that it takes is reported on the virtual object.
//   - A host object without its virtual object, or with another UID, is
//     garbage and is deleted, with its UID and version as preconditions, after
//     the API, not only a cache, confirmed it.
//   - Fields have one owner. The tenant owns specs and labels: a change made
//     by hand on the host is undone. The host owns statuses, allocations and
//     schedules: a change made in the space is undone. Annotations that others
//     put on host objects stay.
//   - A host object deleted by hand is made again, unless Kubernetes would not:
//     a pod that ran is gone, and a bound volume claim is lost.
//   - Tenant objects get no finalizer of Berth's, host objects no owner but
//     the space's namespace, which the classes of tenants have, as these are in
//     none: garbage is found by label.
//   - What the host refuses is told on the virtual object, in an event, and
//     tried again with growing delays.
//
// # At rest and asleep
//
// A syncer with nothing to do runs no goroutine but those of its watches. Config
// maps and secrets are not held but read when a pod refers to them. A space
// without requests, whose syncer is [engine.Engine.Idle], can be put to sleep: the
// syncer is stopped, and [hostcache.Host.OnChange] says when it is wanted again, beside
// [engine.Engine.NextTimer]. A syncer that is begun anew catches up with all that
// happened on both sides.
//
// Host objects are written as the space's own service account, which can reach
// nothing but the space's namespace and, where the admin lets tenants have
// classes of their own on the host, those classes; they are read from watches
// that all spaces of a shard share.
//
// What is synced is in the table of [github.com/berth-dev/berth/syncer/resources].
// The host objects of a disabled resource are deleted, but for data: see [github.com/berth-dev/berth/syncer/resources.Resource.Lasts].
//
// The package makes no HTTP handlers and no certificates.
package syncer
