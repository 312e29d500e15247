// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build !linux || !cgo

package sqlite

// FreeOSMemory does nothing: glibc is what has to be told.
func FreeOSMemory() {}
