// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"fmt"
	"maps"
	"math"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/berth-dev/berth/api/v1alpha1"
)

// failedMoves are the spaces whose stores could not be moved from their pods. Each attempt stops the space for a while, so that
// the pauses between them grow. The zero value is ready to use. It is safe for concurrent use.
type failedMoves struct {
	mu sync.Mutex
	of map[string]*failedMove
}

type failedMove struct {
	object *v1alpha1.Space // of the last attempt
	err    error
	after  time.Time
	pause  wait.Backoff
}

// check returns the error of the last attempt if it is too early for the next one. What the admin changes of the object may be
// the remedy, so that it is tried at once.
func (f *failedMoves) check(object *v1alpha1.Space) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	failed := f.of[object.Name]
	if failed == nil || !failed.of(object) || !time.Now().Before(failed.after) {
		return nil
	}
	return fmt.Errorf("%w; Berth tries again at %s, or when the object changes", failed.err, failed.after.UTC().Format(time.TimeOnly+" MST"))
}

// note records that an attempt has failed.
func (f *failedMoves) note(object *v1alpha1.Space, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.of == nil {
		f.of = map[string]*failedMove{}
	}
	failed := f.of[object.Name]
	if failed == nil || !failed.of(object) {
		failed = &failedMove{object: object, pause: wait.Backoff{Duration: 10 * time.Second, Factor: 2, Steps: math.MaxInt32, Cap: 30 * time.Minute}}
		f.of[object.Name] = failed
	}
	failed.err, failed.after = err, time.Now().Add(failed.pause.Step())
}

func (f *failedMoves) forget(space string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.of, space)
}

func (f *failedMove) of(object *v1alpha1.Space) bool {
	return f.object.UID == object.UID && f.object.Generation == object.Generation && maps.Equal(f.object.Annotations, object.Annotations)
}
