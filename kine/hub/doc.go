// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package hub hands the changes of a store to those who watch it: each change is read once for all of them, and a watch whose
// client is slow reads again, on its own, what it has missed. What watches hold is bounded by a [Flow].
//
// It is called by kine. It reads the store only by the function that it is given, and writes nothing.
package hub
