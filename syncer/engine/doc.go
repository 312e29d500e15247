// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package engine does the work of one space's syncer that is the same for all resources: look here for how an object is
// reconciled, queued, retried, refused, paced, and counted.
//
//   - engine.go, run.go: [Engine] is one space's syncer; it takes keys from its [Queue] and works on several at once.
//   - resource.go, creates.go: [Resource] is what a resource declares, and how its objects are reconciled with the host's.
//   - sources.go, names.go, references.go, extensions.go: what events of both sides become which keys.
//   - writer.go, holds.go, bytes.go, fair.go, ledger.go, shortages.go, compute.go: what a space may write, use, and wait for.
//   - refusal.go, recorder.go: what its tenant is told.
//
// # The contract
//
// A resource is declared as a [Resource]: how a virtual object looks on the host (ToHost), which fields of
// an existing host object the tenant owns (UpdateHost), and which of the virtual
// object the host owns (SyncStatus). The engine does the rest, the same for all:
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
// Packages of resources call it, and package syncer runs it. It knows no resource, but what the description of each says and the
// few types that have to be counted or sized.
package engine
