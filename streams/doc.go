// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package streams is a space's way to its pods where they run (S5): logs, exec,
// attach, port forwarding, connections for the proxies of pods and services, and
// what pods use of processor and memory.
//
// It is what a kubelet is to a cluster's API server. Everything goes through the
// host's API, as the space's own account, which has rights in the space's host
// namespace only; kubelets are never reached from here. Who may do what with
// which pod the space's API server has decided before, with upstream's code; no
// path, header or host of a tenant's reaches the host, only options that were
// parsed and made anew.
//
// A pod is found by its identity, UID included, so that a name that is used
// again does not lead to another pod. What the host answers is put into the
// space's words: its errors name the tenant's pod and nothing of the host (N1).
//
// The shard makes a [Streams] for each space that is awake, and closes it with
// the space: no stream outlives it.
package streams
