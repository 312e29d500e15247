// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package e2e holds the end-to-end tests: they build the berth command and
// kubectl from this module, and use Berth as its users do, through kubectl and
// client-go. Most run `berth up` as a process with its embedded host; those in
// whose names is RealCluster or RealContainers install Berth by Helm in a
// cluster that has containers (docs/contributing/kind.md).
//
// Nothing calls it. Of the project's packages it imports only the one that makes
// keys and certificates: names, labels and messages are spelled out, as a user
// would meet them.
package e2e
