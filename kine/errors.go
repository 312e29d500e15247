// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package kine

import "github.com/berth-dev/berth/kine/sqlite"

// Errors of opening, restoring and serving a store, to be told apart by errors.Is.
var (
	// ErrNotStore: the file is there, but no space's store.
	ErrNotStore = sqlite.ErrNotStore
	// ErrDamaged: the file was a store; parts of it can't be trusted any more.
	ErrDamaged = sqlite.ErrDamaged
	// ErrInUse: another process, or another Store of this one, has the file open.
	ErrInUse = sqlite.ErrInUse
)
