// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package kine stores a space's data in one SQLite file, or in a database server, and serves it as etcd inside the process.
//
// vcluster opens a [Store] when a space starts or wakes, passes its [Store.Client] to the space's API server, and
// closes it when the space goes to sleep. Acknowledged writes survive kill -9 and power loss (requirement D1). A file
// that is not a store, or is damaged, is rejected and not changed.
//
// A Store has a size limit, compacts itself when it comes close to it, and returns space to the disk (D3).
// [Store.Snapshot] copies it while it serves, and [Restore] makes a new store from a copy (D2). An idle store uses
// almost nothing: no goroutine for each watch, no ticker, and no memory of SQLite.
//
// The etcd semantics are those of github.com/k3s-io/kine. This package combines its parts with a single writer that
// commits in groups, closes them in the right order, and returns errors that kine would hide.
//
// It does not listen on a socket, does not depend on kinds of Kubernetes, and has no state outside of a Store.
package kine
