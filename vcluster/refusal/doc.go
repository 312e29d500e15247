// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package refusal makes the errors that clients of a space get when a limit of the space is exceeded: that they may
// try again in a moment, that they must ask for less, or that the space is full. It is for packages of vcluster, which
// exceed these limits by package bounds.
package refusal
