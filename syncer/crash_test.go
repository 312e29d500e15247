// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package syncer_test

import (
	"context"
	"net/http"
	"sync"
	"testing"

	"github.com/berth-dev/berth/internal/testhost"
)

// fate is what becomes of the write at which a syncer dies.
type fate string

const (
	unsent     fate = "unsent"     // it never left
	unanswered fate = "unanswered" // it was done, and nobody knows
)

// dieAt is the rule of a life that ends at the first write that is due.
func (l *life) dieAt(f fate, due func(call) bool) rule {
	return func(c call, send func() (*http.Response, error)) (*http.Response, error) {
		if !c.writes() || !due(c) {
			return send()
		}
		if f == unanswered {
			if resp, err := send(); err == nil {
				_ = resp.Body.Close()
			}
		}
		l.doom()
		return nil, errCut
	}
}

// A syncer that dies at each new write it comes to, to the host or to the
// space, before it is sent or before its answer is read, and is begun anew each
// time, loses, leaks and doubles nothing (S7).
func TestSyncerSurvivesADeathAtEveryWrite(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		fate  fate
		whole int64 // at each so many deaths the control plane is stopped as well
	}{
		"unsent":     {unsent, 25},
		"unanswered": {unanswered, 0},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBed(t, "crash-every-"+name)
			var mu sync.Mutex
			deaths := map[string]bool{}
			first := func(c call) bool {
				mu.Lock()
				defer mu.Unlock()
				died := deaths[c.String()]
				deaths[c.String()] = true
				return !died
			}
			var died int64
			b.supervise(func(l *life) rule { return l.dieAt(test.fate, first) }, func() bool {
				died++
				return test.whole > 0 && died%test.whole == 0
			})
			b.playScenario("", true)
			mu.Lock()
			defer mu.Unlock()
			if len(deaths) < 50 {
				t.Errorf("the syncer died %d times only: %v", len(deaths), deaths)
			}
		})
	}
}

// playScenario plays the scenario to its end, and checks what never may happen.
func (b *bed) playScenario(suffix string, clean bool) {
	b.t.Helper()
	s := newScenario(b.virtual, suffix)
	seen := b.takeCensus()
	rest := step{"come to rest", b.alike}
	b.play(s.build())
	b.play(s.change(rest))
	if count := seen.count(s.app, s.doomed); count != scenarioPods {
		b.t.Errorf("scenario %q made %d pods, want %d: some were deleted that should not have been", suffix, count, scenarioPods)
	}
	if err := seen.twice(); err != nil {
		b.t.Error(err)
	}
	if clean {
		b.play(s.clean(rest))
	}
}

func (b *bed) play(steps []step) {
	b.t.Helper()
	for _, s := range steps {
		testhost.Eventually(b.t, s.name, func(ctx context.Context) error { return s.do(ctx) })
	}
}
