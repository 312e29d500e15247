// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package kine keeps a space's data: one SQLite file, served as etcd inside the process.
//
// vcluster opens a [Store] when a space starts or wakes, hands its [Store.Client] to the space's API server, and closes
// it when the space sleeps. What a Store acknowledged survives kill -9 and power loss (requirement D1). A file that is
// not a store, or is damaged, is refused and left as it was.
//
// A Store has a limit, compacts itself when it nears it, and gives space back to the disk (D3). It is backed up while it
// serves by [Store.Snapshot], and [Restore] makes another of that (D2). While nothing happens in it, it costs next to
// nothing: no goroutine a watch, no ticker, no memory of SQLite's.
//
// The etcd semantics come from github.com/k3s-io/kine; this package assembles its parts around a single writer that
// commits in groups, closes them in order, and refuses what kine would paper over.
//
// It never listens on a socket, never knows a Kubernetes kind, and never keeps state outside a Store.
package kine
