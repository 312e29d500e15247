// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build !race

package testrace

// Enabled tells whether the race detector is on.
const Enabled = false
