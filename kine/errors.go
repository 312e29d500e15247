// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package kine

import "github.com/berth-dev/berth/kine/sqlite"

// These are the errors of Open about a file. The errors that it returns wrap one of them, with the path and the remedy.
var (
	// ErrNotStore means that the file is not the store of a space.
	ErrNotStore = sqlite.ErrNotStore
	// ErrDamaged means that the file is a store, but parts of it are damaged.
	ErrDamaged = sqlite.ErrDamaged
	// ErrInUse means that another process, or another Store of this process, has opened the file.
	ErrInUse = sqlite.ErrInUse
)
