// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package replicator

import (
	"testing"
	"time"
)

// D2: a replica that waits for its upload is behind, although nothing has failed.
func TestAReplicaThatIsLateIsBehind(t *testing.T) {
	f := &follower{published: State{Reason: UpToDate, Revision: 5}}
	r := &Replicator{followers: map[string]*follower{"late": f}}
	for lag, want := range map[time.Duration]Reason{0: UpToDate, time.Second: UpToDate, time.Minute: Behind} {
		f.pending = time.Time{}
		if lag > 0 {
			f.pending = time.Now().Add(-lag)
		}
		if state, _ := r.State("late"); state.Reason != want || want == Behind && state.Since != f.pending {
			t.Errorf("with a lag of %s, the state is %+v", lag, state)
		}
	}
}
