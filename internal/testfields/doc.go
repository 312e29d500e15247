// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package testfields walks all fields of the API types that Berth syncs, for tests
// that each is dealt with. Its table says which of them package translate writes; a
// field that Kubernetes adds is not among them, and so has to be refused.
package testfields
