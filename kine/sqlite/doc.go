// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package sqlite knows the file that a store is: how it is made, examined before it is trusted, locked, opened for the one
// who writes and for those who read, and copied to a place where nothing is.
//
// It is called by kine, which keeps a store that is open. It knows kine's table, and nothing of what is in it.
package sqlite
