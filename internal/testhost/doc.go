// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package testhost is for the tests of several packages: one embedded
// host cluster for all tests of a package, quiet logs, and waits for a
// condition. Only tests call it.
package testhost
