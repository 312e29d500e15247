// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package operations

import (
	"fmt"
	"math"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// FailedMoves are the spaces whose stores could not be moved. Each attempt stops the space for a while, so that
// the pauses between them grow. The zero value is ready to use. It is safe for concurrent use.
type FailedMoves struct {
	mu sync.Mutex
	of map[string]*failedMove
}

type failedMove struct {
	of    any // with which it was tried
	err   error
	after time.Time
	pause wait.Backoff
}

// Check returns the error of the last attempt if it is too early for the next one. wish is comparable, and what an admin says of the space
// that may make a move succeed: if it is another one, the move is tried at once.
func (f *FailedMoves) Check(space string, wish any) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	failed := f.of[space]
	if failed == nil || failed.of != wish || !time.Now().Before(failed.after) {
		return nil
	}
	return fmt.Errorf("%w; Berth tries again at %s, or when its spec changes", failed.err, failed.after.UTC().Format(time.TimeOnly+" MST"))
}

// Note records that an attempt has failed.
func (f *FailedMoves) Note(space string, wish any, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.of == nil {
		f.of = map[string]*failedMove{}
	}
	failed := f.of[space]
	if failed == nil || failed.of != wish {
		failed = &failedMove{of: wish, pause: wait.Backoff{Duration: 10 * time.Second, Factor: 2, Steps: math.MaxInt32, Cap: 30 * time.Minute}}
		f.of[space] = failed
	}
	failed.err, failed.after = err, time.Now().Add(failed.pause.Step())
}

// Pause returns how long it is until the next attempt to move a space.
func (f *FailedMoves) Pause(space string) time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	failed := f.of[space]
	if failed == nil {
		return 0
	}
	return max(0, time.Until(failed.after))
}

// Forget forgets the attempts to move a space.
func (f *FailedMoves) Forget(space string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.of, space)
}
