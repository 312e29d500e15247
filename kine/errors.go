// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package kine

import "errors"

// What Open can find wrong with a file. The errors returned wrap one of these with the path and what to do.
var (
	// ErrNotStore: the file is there, but no space's store.
	ErrNotStore = errors.New("not a store")
	// ErrDamaged: the file was a store; parts of it can't be trusted any more.
	ErrDamaged = errors.New("store is damaged")
	// ErrInUse: another process, or another Store of this one, has the file open.
	ErrInUse = errors.New("store is in use")
)
