// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package shards

import (
	"testing"
	"time"

	"github.com/berth-dev/berth/api/v1alpha1"
)

// T9: a dedicated space takes no memory of its shard, but a move disturbs its users unless it sleeps.
func TestWhatAMoveDisturbs(t *testing.T) {
	for _, test := range []struct {
		isolation   v1alpha1.Isolation
		state       v1alpha1.SpaceState
		awake, busy bool
	}{
		{"", "", true, false}, // it is about to be created
		{v1alpha1.Shared, v1alpha1.SpaceRunning, true, false},
		{v1alpha1.Shared, v1alpha1.SpaceAsleep, false, false},
		{v1alpha1.Dedicated, v1alpha1.SpaceRunning, false, true},
		{v1alpha1.Dedicated, v1alpha1.SpaceAsleep, false, false},
	} {
		space := &v1alpha1.Space{}
		space.Status.Isolation, space.Status.State = test.isolation, test.state
		if is := spaceOf(space, time.Time{}); is.Awake != test.awake || is.Busy != test.busy {
			t.Errorf("%q, %q: awake %t, busy %t", test.isolation, test.state, is.Awake, is.Busy)
		}
	}
}
