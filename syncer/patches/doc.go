// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package patches changes objects for the host as an admin's spec.patches of a Space say. Patches are the last that is done to an object
// before the account of its space writes it, so that the host's admission policies judge what they make of it.
package patches
