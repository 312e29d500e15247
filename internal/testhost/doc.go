// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package testhost is what the tests of several rooms stand on: one embedded
// host cluster for all tests of a package, quiet logs, and waits for a
// condition. Only tests call it.
package testhost
