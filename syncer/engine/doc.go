// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package engine does the part of a space's syncer that is the same for all resources: how an object is reconciled,
// queued, retried, rejected, paced, and counted.
//
// - engine.go, run.go: [Engine] is one space's syncer. It takes keys from its [Queue] and processes several at once.
// - resource.go, creates.go: [Resource] is what a resource declares, and how its objects are reconciled with the
// host's.
// - sources.go, names.go, references.go, extensions.go: which events on both sides enqueue which keys.
// - writer.go, holds.go, bytes.go, fair.go, ledger.go, shortages.go, compute.go: what a space may write and use, and
// what it waits for.
// - refusal.go, recorder.go: what the tenant learns about rejected objects.
//
// # The contract
//
// A resource is declared as a [Resource]: what a virtual object looks like on the host (ToHost), which fields of an
// existing host object the tenant owns (UpdateHost), and which fields of the virtual object the host owns (SyncStatus).
// The engine does the rest in the same way for all resources:
//
// - A key consists of resource, virtual namespace, and name. Events on both sides lead to the same key. Reconciling is
// level-triggered and idempotent, so that the next run repairs the effects of a crash at any instruction (S7).
// - A host object belongs to the space if it has the space's label and an identity (translate.IdentityOf), and it
// belongs to the virtual object whose UID it records. All other objects are foreign: they are never written or deleted,
// and a conflict over a name is reported on the virtual object.
// - A host object without its virtual object, or with another UID, is garbage. It is deleted after the API, not only a
// cache, has confirmed that. Its UID and version are preconditions of the deletion.
// - Each field has one owner. The tenant owns specs and labels: changes that somebody makes on the host are reverted.
// The host owns statuses, allocations, and scheduling: changes made in the space are reverted. Annotations that others
// add to host objects stay.
// - A host object that somebody deletes is created again, unless Kubernetes would not do that: a pod that ran is gone,
// and a bound volume claim is lost.
// - Objects of tenants get no finalizer of Berth. Host objects have no owner, except that exported classes, which are
// cluster-scoped, are owned by the space's namespace. Garbage is found by label.
// - What the host rejects is reported by an event on the virtual object, and retried with increasing pauses.
//
// Packages of resources call the engine, and package syncer runs it. It knows about resources only what their
// descriptions say, except for a few types that it has to count or measure.
package engine
