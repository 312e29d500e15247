// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// T7: one thing is done to a space at a time.
func TestASpaceIsNotRestoredAndDeletedAtOnce(t *testing.T) {
	var c changes
	end, err := c.begin("a", "being restored")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.begin("a", "being deleted"); !apierrors.IsConflict(err) {
		t.Errorf("got %v, want a conflict", err)
	}
	other, err := c.begin("b", "being deleted")
	if err != nil {
		t.Error(err)
	}
	other()
	end()
	if _, err := c.begin("a", "being deleted"); err != nil {
		t.Errorf("once the first has ended: %v", err)
	}
}
