// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package hub delivers the changes of a store to watches. It reads each change once for all of them. A watch with a
// slow client reads what it has missed by itself. A [Flow] limits what a watch holds in memory.
//
// kine calls it. It reads the store only with the function that it is given, and writes nothing.
package hub
