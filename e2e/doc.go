// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package e2e holds the end-to-end tests: they build the berth command and
// kubectl from this module, run `berth up` as a process, and use it as its
// users do, through kubectl and client-go, against the embedded host.
//
// Nothing calls it. It imports no other package of the project: names, labels
// and messages are spelled out, as a user would meet them.
package e2e
