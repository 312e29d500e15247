// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package kine

// Errors of opening, restoring and serving a store, to be told apart by errors.Is.
var (
	// ErrNotStore: the file is there, but no space's store.
	ErrNotStore = errNotStore
	// ErrDamaged: the file was a store; parts of it can't be trusted any more.
	ErrDamaged = errDamaged
	// ErrInUse: another process, or another Store of this one, has the file open.
	ErrInUse = errInUse
)
