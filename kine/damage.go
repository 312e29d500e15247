// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package kine

import "errors"

var (
	// errNotStore: the file is there, but no space's store.
	errNotStore = errors.New("not a store")
	// errDamaged: the file was a store; parts of it can't be trusted any more.
	errDamaged = errors.New("store is damaged")
	// errInUse: another process, or another Store of this one, has the file open.
	errInUse = errors.New("store is in use")
)
