// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package replicator

import (
	"errors"
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

// D2: after a start of the platform, a process that doesn't answer, or that sleeps with writes that the bucket may not have, isn't up to date. What is
// known to be refused stays so.
func TestAReplicaOfWhichNothingIsKnownFallsBehind(t *testing.T) {
	record := map[string]func(f *follower){
		"no answer": func(f *follower) { f.unknown(errors.New("no answer")) },
		"asleep":    func(f *follower) { f.asleep(7) },
	}
	for name, record := range record {
		for before, want := range map[Reason]Reason{"": Behind, UpToDate: Behind, TakenOver: TakenOver, StoreBehind: StoreBehind} {
			f := &follower{r: &Replicator{}, state: State{Reason: before}, pending: time.Now().Add(-time.Minute)}
			if record(f); f.state.Reason != want {
				t.Errorf("%s: a replica that was %q is %+v", name, before, f.state)
			}
		}
		f := &follower{r: &Replicator{}}
		if record(f); f.state.Reason != "" || f.pending.IsZero() {
			t.Errorf("%s: a moment after the start, the replica is %+v", name, f.state)
		}
	}
	f := &follower{r: &Replicator{}}
	if f.asleep(0); f.state.Reason != "" || !f.pending.IsZero() {
		t.Errorf("a store that was never open changes the replica to %+v", f.state)
	}
}
