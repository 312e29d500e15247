// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package control carries commands of this machine's administrator to a running Berth server: plain HTTP and JSON over
// a unix socket in the data directory, which only its owner can open. `berth up` serves it with the routes that it adds
// to a mux, and the other commands are clients. Errors are sent as [metav1.Status], as an API server does.
//
// It authenticates nobody: the mode of the file protects it. It never listens on a network.
package control
