// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package kine

import "github.com/berth-dev/berth/kine/sqlite"

// What Open can find wrong with a file. The errors returned wrap one of these with the path and what to do.
var (
	// ErrNotStore: the file is there, but no space's store.
	ErrNotStore = sqlite.ErrNotStore
	// ErrDamaged: the file was a store; parts of it can't be trusted any more.
	ErrDamaged = sqlite.ErrDamaged
	// ErrInUse: another process, or another Store of this one, has the file open.
	ErrInUse = sqlite.ErrInUse
)
