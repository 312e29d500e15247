// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package operations_test

import (
	"errors"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/berth-dev/berth/platform/operations"
)

// T7: one thing is done to a space at a time.
func TestASpaceIsNotRestoredAndDeletedAtOnce(t *testing.T) {
	var c operations.Changes
	end, err := c.Begin("a", "being restored")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Begin("a", "being deleted"); !apierrors.IsConflict(err) {
		t.Errorf("got %v, want a conflict", err)
	}
	other, err := c.Begin("b", "being deleted")
	if err != nil {
		t.Error(err)
	}
	other()
	end()
	if _, err := c.Begin("a", "being deleted"); err != nil {
		t.Errorf("once the first has ended: %v", err)
	}
}

// The pauses after moves that failed grow, until the admin changes what the space is to be.
func TestPausesAfterFailedMovesGrow(t *testing.T) {
	var f operations.FailedMoves
	pause := func() time.Duration {
		f.Note("a", 1, errors.New("the disk is full"))
		return f.Pause("a")
	}
	first := pause()
	if next := pause(); first <= 0 || next <= first {
		t.Errorf("the pause is %s, and was %s", next, first)
	}
	if err := f.Check("a", 1); err == nil {
		t.Error("the move is tried again at once")
	}
	if err := f.Check("a", 2); err != nil {
		t.Errorf("after a change: %v", err)
	}
	if f.Forget("a"); f.Check("a", 1) != nil {
		t.Error("the attempts are remembered")
	}
}
