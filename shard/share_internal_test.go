// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package shard

import (
	"errors"
	"fmt"
	"testing"

	"github.com/berth-dev/berth/bounds"
)

// T9: what a space takes of its share is what it weighs, and one that was put to sleep for its memory takes too much.
func TestWhatASpaceTakesOfItsShareIsWhatItWeighs(t *testing.T) {
	memory := &Memory{Limit: 1000 * mib}
	weighs := func(requests, objects int64) *place {
		return &place{state: running, started: true, space: &Space{account: holding(requests, objects)}}
	}
	for name, tc := range map[string]struct {
		place *place
		want  ShareUse
	}{
		"small":              {weighs(1, 1), WithinShare},
		"nine tenths":        {weighs(30, 60), WithinShare},
		"near":               {weighs(31, 60), NearShare},
		"a tenth":            {weighs(30, 70), NearShare},
		"more":               {weighs(31, 70), OverShare},
		"with its schemas":   {func() *place { p := weighs(0, 31); p.space.account.Set(bounds.SchemaBytes, 7*mib); return p }(), OverShare},
		"asleep":             {&place{state: asleep, started: true}, WithinShare},
		"not started":        {&place{state: asleep}, ShareUnknown},
		"starting":           {&place{state: starting, started: true}, ShareUnknown},
		"failed":             {&place{state: asleep, started: true, failure: errors.New("broken")}, ShareUnknown},
		"being put to sleep": {&place{state: stopping, started: true, evicted: errMemory}, OverShare},
		"put to sleep":       {&place{state: asleep, started: true, failure: fmt.Errorf("%w: 900 bytes", errMemory)}, OverShare},
		"waking after that":  {&place{state: starting, started: true, failure: errMemory}, OverShare},
	} {
		s := &Shard{config: Config{Memory: memory}, places: map[string]*place{"a": tc.place}}
		if got := s.ShareUse("a"); got != tc.want {
			t.Errorf("%s: it takes %d of its share, want %d", name, got, tc.want)
		}
		if got := s.ShareUse("unknown"); got != ShareUnknown {
			t.Errorf("one that is not there takes %d", got)
		}
		if s.config.Memory = nil; s.ShareUse("a") != ShareUnknown || s.MemoryShare() != 0 {
			t.Errorf("%s: there is a share of a process without a limit", name)
		}
	}
}
