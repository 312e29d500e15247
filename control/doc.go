// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package control carries what the administrator of this machine asks of a
// running berth: plain HTTP and JSON over a unix socket in the data directory,
// which its owner alone may open. `berth up` serves it, with the routes that it
// puts on a mux; the other commands are its clients. Errors travel as
// [metav1.Status], like those of an API server.
//
// It authenticates nobody: the file's mode does. It never listens on a network.
package control
