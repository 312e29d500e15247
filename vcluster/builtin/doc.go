// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package builtin serves the APIs that are built into Kubernetes to all control
// planes of a process with one tree of handlers: routes, schemas, printers and
// registries are made once, and are most of what an API server takes.
//
// They are upstream's. What a request is to use of its own control plane (its
// storage, admission, authorizer, authenticator, and registries that keep state
// in memory) is in the [Space] that its context carries; without one, every
// operation fails. Only vcluster calls this package: it puts the Space into the
// context of each request before any of upstream's handlers sees it, over
// whatever was there.
//
// The package keeps nothing of a Space beyond a request.
package builtin
