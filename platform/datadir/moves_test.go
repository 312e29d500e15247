// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package datadir

import "testing"

// D5: the number of moves of a directory can be set to that of an object that never moved, too.
func TestTheNumberOfMovesIsWhatWasSet(t *testing.T) {
	dir := t.TempDir()
	for _, want := range []int64{0, 3, 12, 0} {
		if err := SetMoves(dir, want); err != nil {
			t.Fatal(err)
		}
		if moves, err := Moves(dir); err != nil || moves != want {
			t.Errorf("it has moved %d times, want %d (%v)", moves, want, err)
		}
	}
}
