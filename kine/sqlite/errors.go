// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package sqlite

import "errors"

var (
	// ErrNotStore says that the file is there, but no space's store.
	ErrNotStore = errors.New("not a store")
	// ErrDamaged says that the file was a store; parts of it can't be trusted any more.
	ErrDamaged = errors.New("store is damaged")
	// ErrInUse says that another process, or another Store of this one, has the file open.
	ErrInUse = errors.New("store is in use")
)
