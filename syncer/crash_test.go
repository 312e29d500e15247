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

// crashMode is when a syncer crashes: before or after the host has got its write.
type crashMode string

const (
	unsent     crashMode = "unsent"     // the write is not sent
	unanswered crashMode = "unanswered" // the write is done, and its answer lost
)

// crashAt is the rule of a run that ends at the first write that is due.
func (run *syncerRun) crashAt(mode crashMode, due func(call) bool) rule {
	return func(c call, send func() (*http.Response, error)) (*http.Response, error) {
		if !c.writes() || !due(c) {
			return send()
		}
		if mode == unanswered {
			if resp, err := send(); err == nil {
				_ = resp.Body.Close()
			}
		}
		run.crash()
		return nil, errCut
	}
}

// A syncer that crashes at each new write it comes to, to the host or to the
// space, before it is sent or before its answer is read, and is begun anew each
// time, loses, leaks and doubles nothing (S7).
func TestSyncerSurvivesACrashAtEveryWrite(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		mode  crashMode
		whole int64 // at each so many crashes the control plane is stopped as well
	}{
		"unsent":     {unsent, 25},
		"unanswered": {unanswered, 0},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			env := newEnv(t, "crash-every-"+name)
			var mu sync.Mutex
			crashes := map[string]bool{}
			first := func(c call) bool {
				mu.Lock()
				defer mu.Unlock()
				crashed := crashes[c.String()]
				crashes[c.String()] = true
				return !crashed
			}
			var crashed int64
			env.supervise(func(run *syncerRun) rule { return run.crashAt(test.mode, first) }, func() bool {
				crashed++
				return test.whole > 0 && crashed%test.whole == 0
			})
			env.playScenario("", true)
			mu.Lock()
			defer mu.Unlock()
			if len(crashes) < 50 {
				t.Errorf("the syncer crashed %d times only: %v", len(crashes), crashes)
			}
		})
	}
}

// playScenario plays the scenario to its end, and checks what never may happen.
func (env *testEnv) playScenario(suffix string, clean bool) {
	env.t.Helper()
	s := newScenario(env.virtual, suffix)
	seen := env.logPods()
	rest := step{"come to rest", env.alike}
	env.play(s.build())
	env.play(s.change(rest))
	if count := seen.count(s.app, s.other); count != scenarioPods {
		env.t.Errorf("scenario %q made %d pods, want %d: some were deleted that should not have been", suffix, count, scenarioPods)
	}
	if err := seen.twice(); err != nil {
		env.t.Error(err)
	}
	if clean {
		env.play(s.clean(rest))
	}
}

func (env *testEnv) play(steps []step) {
	env.t.Helper()
	for _, s := range steps {
		testhost.Eventually(env.t, s.name, func(ctx context.Context) error { return s.do(ctx) })
	}
}
