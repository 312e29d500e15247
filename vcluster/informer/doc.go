// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package informer gives a control plane its informers: the API server, the
// controllers and the syncer of a space share one informer a kind, which lives
// as long as somebody uses it.
//
// Informers read the space's store, not its API: one watch over the whole store
// ([Feed]) serves all of them, and tells the controllers' supervisor what was
// written. The objects are those that the API would give, without managed
// fields; a test compares them for all kinds.
//
// It is called by vcluster. It writes nothing, and it knows no kind by name.
package informer
