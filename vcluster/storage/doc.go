// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package storage is a space's store as its API server uses it: upstream's storage of each resource on the one client
// of the store, bounded by the space's account in what is written, read, listed and watched, with caches for long
// lists that are read often.
//
// It is called by vcluster. It knows no request but by its context (package requests), and closes the store that it is
// given.
package storage
